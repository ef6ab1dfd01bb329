"""Storage: the adapters of every storage port on SQLite and Postgres, with one set of queries (ADR 2)."""
