"""Tools: their specs, their registry, and the one way a call goes: validate, authorize, execute, record."""
