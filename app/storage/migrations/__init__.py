"""Alembic's environment and revisions; run by `app.storage.migrate`."""
