"""Prompts of text agents, one module a format; `registry.PROMPTS` has one for each type."""
