"""Rows of the journal: a batch of events as it is stored."""

from typing import Any

import orjson
from sqlalchemy import insert

from app.runs.records import Batch
from app.storage.database import Tx
from app.storage.statement import Statement
from app.storage.tables import journal

_JOURNAL = Statement(insert(journal))


def write_batch(
    tx: Tx, run_id: str, tenant: str, batch: int, epoch: int, events: Batch, private: list[Any] | None = None
) -> None:
    """Insert one row of the journal."""
    tx.run(
        _JOURNAL,
        {
            "run_id": run_id,
            "batch": batch,
            "tenant": tenant,
            "first_seq": events.first_seq,
            "n": events.n,
            "last_seq": events.first_seq + events.n - 1,
            "epoch": epoch,
            "idx": orjson.dumps(events.index).decode(),
            "wire": events.wire,
            "private": orjson.dumps(private).decode() if private else None,
        },
    )
