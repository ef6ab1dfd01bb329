"""Alembic's environment: one connection, one transaction for all revisions."""

from alembic import context
from sqlalchemy import create_engine, pool

from app.storage.tables import SCHEMA

engine = create_engine(context.config.get_main_option("sqlalchemy.url") or "", poolclass=pool.NullPool)
with engine.begin() as connection:
    context.configure(connection=connection, target_metadata=SCHEMA, render_as_batch=True)
    context.run_migrations()
