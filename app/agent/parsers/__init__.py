"""Parsers of text agents, one module a format; `registry.PARSERS` has one for each type."""
