"""Middleware: what an agent's runs pass through, built in, in Python or over HTTP."""
