"""The HTTP surface of a running server: what it refuses, and how."""
