"""The keys that calls are signed with: which of them count now, and what a silent database changes of that."""

import pytest

from app.core.errors import Unavailable
from app.tools.signing import DatedKeys, RotatingKeys

pytestmark = pytest.mark.anyio

OLD, NEW = b"o" * 24, b"n" * 24


class Stored:
    """What the database holds, how often it was asked, and whether it answers."""

    def __init__(self, *keys: tuple[bytes, int | None]) -> None:
        self.keys: DatedKeys = keys
        self.asked = 0
        self.down = False

    async def load(self) -> DatedKeys:
        self.asked += 1
        if self.down:
            raise Unavailable("down")
        return self.keys


async def test_a_key_signs_until_its_time_is_over_without_being_read_again() -> None:
    now = [1000]
    stored = Stored()
    keys = RotatingKeys([(NEW, None), (OLD, 2000)], stored.load, lambda: now[0])
    assert list(keys) == [NEW, OLD]
    now[0] = 2000
    assert (list(keys), len(keys), keys[0]) == ([NEW], 1, NEW)
    assert stored.asked == 0


async def test_they_are_read_again_when_they_are_old() -> None:
    stored = Stored((NEW, None), (OLD, 2**60))
    keys = RotatingKeys([(OLD, None)], stored.load)
    await keys.refresh(3600.0)
    assert (list(keys), stored.asked) == ([OLD], 0)
    await keys.refresh(0.0)
    assert (list(keys), stored.asked) == ([NEW, OLD], 1)


async def test_a_database_that_does_not_answer_and_a_tool_that_is_gone_leave_the_keys_as_they_are() -> None:
    stored = Stored()
    keys = RotatingKeys([(OLD, None)], stored.load)
    await keys.refresh(0.0)
    stored.down = True
    await keys.refresh(0.0)
    assert (list(keys), stored.asked) == ([OLD], 2)
