"""Followers: a run's events from any point on, replayed and then live, as the bytes that were journaled.

One loop does both, with a cursor: what is in the hub's tail comes from memory, what is older from the journal, and when
there is nothing more it waits for "the run has reached N". So there is no moment between replay and following.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable

from app.core.errors import Unavailable
from app.core.events import ALWAYS_SENT, EVENT_TYPES, ON_REQUEST
from app.core.values import immutable
from app.runs.hub import Hub, Tail
from app.runs.ports import RunStore
from app.runs.records import Batch
from app.runs.status import TERMINAL

CHUNK_BYTES = 64 * 1024
"""At most about this much is handed to a client at once (a send's time limit is per piece)."""

ELSEWHERE_POLL_S = 1.0
"""How often a run is looked up whose driver is not in this process (after a crash, until it is taken up again)."""


USUAL = frozenset(EVENT_TYPES) - ON_REQUEST
"""What a stream without a selection sends."""


@immutable
class FollowOptions:
    after: int = 0
    """The last sequence number the reader has."""
    types: Collection[str] | None = None
    """Event types wanted besides those always sent; `None` = the usual ones."""
    hold: bool = False
    """Stay while the run waits for a person."""
    quiet_s: float = 8.0
    """After so many seconds with nothing to say an empty piece is yielded, for the caller's keep-alive (due within 10 s)."""


async def follow(store: RunStore, hub: Hub, tenant: str, run_id: str, options: FollowOptions) -> AsyncGenerator[bytes]:
    """Yield pieces of whole events (wire bytes), `b""` when quiet; returns after the run's last event.

    That is its `end`, or the `run` event of a run that waits for a person.

    Raises `Unavailable` when the stream has to stop without it (shutdown, the run lost its driver): abort the connection,
    so that the client resumes.
    """
    cursor = options.after
    wanted = None if options.types is None else ALWAYS_SENT.union(options.types)
    tail = hub.join(run_id, cursor)
    now = asyncio.get_running_loop().time
    spoke = now()
    try:
        while True:
            batches = _from_tail(tail, cursor) if tail.covers(cursor) else ()
            if not batches and (tail.reached > cursor or not tail.driven or not tail.batches):
                batches = await store.events(run_id, after=cursor, max_bytes=CHUNK_BYTES)
            for piece, reached, ended in _pieces(batches, cursor, wanted):
                cursor = reached
                if piece:
                    yield piece
                    spoke = now()
                if ended:
                    return
            if batches:
                continue
            if hub.draining:
                raise Unavailable("The server is shutting down; resume the stream with Last-Event-ID.")
            if tail.broken:
                raise Unavailable("The run is being recovered; resume the stream with Last-Event-ID.")
            if not tail.driven:
                run = await store.get(tenant, run_id)
                if run is None:
                    raise Unavailable("The run was deleted.")
                over = run.status in TERMINAL or (run.status == "interrupted" and not options.hold)
                if over and run.last_seq <= cursor:
                    return
                # Whoever wakes it opens the tail here; until then there is nothing to look for.
                tail.parked = run.parked is not None and run.owner is None and run.status != "pending"
            if now() - spoke >= options.quiet_s:  # whatever came meanwhile: it may all have been filtered out
                yield b""
                spoke = now()
            left = spoke + options.quiet_s - now()
            await hub.wait(tail, cursor, left if tail.driven or tail.parked else min(left, ELSEWHERE_POLL_S))
    finally:
        hub.leave(run_id, tail)


def _from_tail(tail: Tail, cursor: int) -> list[Batch]:
    taken: list[Batch] = []
    size = 0
    for batch in tail.batches:
        if batch.last_seq > cursor:
            taken.append(batch)
            size += len(batch.wire)
            if size >= CHUNK_BYTES:
                break
    return taken


def _pieces(batches: Iterable[Batch], cursor: int, wanted: Collection[str] | None) -> Iterable[tuple[bytes, int, bool]]:
    """(bytes to send, new cursor, whether the run ended), all that is there joined into one piece."""
    parts: list[bytes] = []
    reached, ended = cursor, False
    for batch in batches:
        if batch.last_seq <= reached:
            continue
        parts.append(cut(batch, reached, wanted))
        reached = batch.last_seq
        ended = batch.index[-1][0] == "end"
    if reached > cursor:
        yield b"".join(parts), reached, ended


def cut(batch: Batch, after: int, wanted: Collection[str] | None) -> bytes:
    """The wire bytes of a batch's events beyond `after`, of the wanted types (`None`: the usual ones); slices only, nothing is decoded."""
    skip = max(0, after - batch.first_seq + 1)
    if wanted is None:
        if all(name not in ON_REQUEST for name, _ in batch.index):
            return batch.wire if not skip else batch.wire[batch.index[skip][1] :]
        wanted = USUAL
    ends = [offset for _, offset in batch.index[1:]] + [len(batch.wire)]
    return b"".join(
        batch.wire[offset : ends[position]]
        for position, (name, offset) in enumerate(batch.index)
        if position >= skip and name in wanted
    )
