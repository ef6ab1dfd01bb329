"""Rows of runs and tool calls as values, and back. JSON columns are text that orjson wrote."""

from collections.abc import Mapping
from typing import Any

import orjson

from app.runs.records import CallRecord, CallResult, RunRecord
from app.storage.statement import Row
from app.storage.tables import runs, tool_calls

RUN_COLUMNS = tuple(runs.c[name] for name in RunRecord.__dataclass_fields__)
CALL_COLUMNS = tuple(tool_calls.c[name] for name in CallRecord.__dataclass_fields__)


def text(value: object) -> str:
    return orjson.dumps(value).decode()


def text_or_null(value: object) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def value_of(column: str | None) -> Any:
    return None if column is None else orjson.loads(column)


def run_row(run: RunRecord) -> dict[str, Any]:
    row = {name: getattr(run, name) for name in RunRecord.__dataclass_fields__}
    for name in ("spec", "input", "context", "metadata", "interrupts", "usage"):
        row[name] = text(row[name])
    for name in ("scopes", "output", "error", "queued"):
        row[name] = text_or_null(row[name])
    row["cancel_requested"] = int(run.cancel_requested)
    return row


def run_record(row: Row) -> RunRecord:
    """The inverse of `run_row`, from a row of `RUN_COLUMNS`."""
    run = RunRecord(*row)
    run.spec = orjson.loads(row[4])
    run.input = orjson.loads(row[5])
    run.context = orjson.loads(row[6])
    run.metadata = orjson.loads(row[7])
    run.scopes = value_of(row[9])
    run.output = value_of(row[13])
    run.error = value_of(row[14])
    run.interrupts = orjson.loads(row[15])
    run.cancel_requested = bool(row[19])
    run.usage = orjson.loads(row[29])
    run.queued = value_of(row[36])
    return run


def call_row(call: CallRecord) -> dict[str, Any]:
    row = {name: getattr(call, name) for name in CallRecord.__dataclass_fields__}
    for name in ("tool_input", "attempt_log", "chain"):
        row[name] = text(row[name])
    for name in (
        "observation",
        "error",
        "envelope",
        "reconciled",
        "wait",
        "answer",
        "late_result",
        "command",
        "sent_input",
    ):
        row[name] = text_or_null(row[name])
    return row


def call_record(row: Row) -> CallRecord:
    """The inverse of `call_row`, from a row of `CALL_COLUMNS`."""
    call = CallRecord(*row)
    call.tool_input = orjson.loads(row[8])
    call.observation = value_of(row[21])
    call.error = value_of(row[22])
    call.envelope = value_of(row[23])
    call.attempt_log = orjson.loads(row[24])
    call.chain = orjson.loads(row[25])
    call.reconciled = value_of(row[28])
    call.wait = value_of(row[29])
    call.answer = value_of(row[31])
    call.late_result = value_of(row[32])
    call.command = value_of(row[33])
    call.sent_input = value_of(row[34])
    return call


def result_row(result: CallResult) -> Mapping[str, Any]:
    return {
        "call_id": result.id,
        "state": result.state,
        "status": result.status,
        "observation": text_or_null(result.observation),
        "error": text_or_null(result.error),
        "envelope": text(result.envelope),
        "attempt_log": text(result.attempt_log),
        "chain": text(result.chain),
        "command": text_or_null(result.command),
        "started": result.started_at,
        "duration_ms": result.duration_ms,
    }
