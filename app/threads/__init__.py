"""Threads: conversations with their state, over runs."""
