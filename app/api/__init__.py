"""The HTTP surface: a route parses, calls one service, returns."""
