"""Turns: who comes first is served first, and a line is gone when nobody is in it."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.clock import now_ms
from app.tools.concurrency_key import ConcurrencyKey
from app.tools.turns import CallLine, Turns

pytestmark = pytest.mark.anyio
KEY = ("acme", "key", "k")


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_calls_of_one_key_come_in_the_order_they_asked() -> None:
    turns, order, running = Turns(), list[int](), list[int]()

    async def use(number: int) -> None:
        await turns.take(KEY, 1)
        running.append(number)
        assert len(running) == 1
        await asyncio.sleep(0)
        order.append(number)
        running.remove(number)
        turns.leave(KEY)

    await asyncio.gather(*(use(number) for number in range(50)))
    assert order == list(range(50))
    assert len(turns) == 0


async def test_as_many_as_are_allowed_are_inside_at_once_and_no_later_one_overtakes() -> None:
    turns = Turns()
    await turns.take(KEY, 2)
    await turns.take(KEY, 2)
    strict = asyncio.create_task(turns.take(KEY, 1))
    await settle()
    loose = asyncio.create_task(turns.take(KEY, 5))
    await settle()
    turns.leave(KEY)
    await settle()
    assert (strict.done(), loose.done()) == (False, False)
    turns.leave(KEY)
    await settle()
    assert (strict.done(), loose.done()) == (True, True)
    turns.leave(KEY)
    turns.leave(KEY)
    assert len(turns) == 0


async def test_who_is_cancelled_gives_up_the_place_and_the_next_one_comes() -> None:
    turns = Turns()
    await turns.take(KEY, 1)
    first, second, third = (asyncio.create_task(turns.take(KEY, 1)) for _ in range(3))
    await settle()
    first.cancel()
    await settle()
    turns.leave(KEY)
    second.cancel()  # its turn has come, and it does not know it yet
    await settle()
    assert (first.cancelled(), second.cancelled(), third.done()) == (True, True, True)
    assert len(turns) == 1
    turns.leave(KEY)
    assert len(turns) == 0


async def test_who_was_cancelled_late_leaves_a_new_line_alone() -> None:
    turns = Turns()
    await turns.take(KEY, 1)
    waiting = asyncio.create_task(turns.take(KEY, 1))
    await settle()
    waiting.cancel()
    turns.leave(KEY)
    await turns.take(KEY, 1)
    await settle()
    assert (waiting.cancelled(), len(turns)) == (True, 1)
    turns.leave(KEY)
    assert len(turns) == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from(["go", "cancel"])), max_size=25))
def test_whatever_is_cancelled_nobody_is_left_behind(plan: list[tuple[int, int, str]]) -> None:
    async def scenario() -> None:
        turns, inside = Turns(), dict[int, int]()

        async def use(key: int, at_once: int) -> None:
            await turns.take(("t", "key", str(key)), at_once)
            inside[key] = inside.get(key, 0) + 1
            assert inside[key] <= 3
            try:
                await asyncio.sleep(0)
            finally:
                inside[key] -= 1
                turns.leave(("t", "key", str(key)))

        tasks: list[asyncio.Task[None]] = []
        for key, at_once, what in plan:
            tasks.append(asyncio.create_task(use(key, at_once)))
            if what == "cancel":
                tasks[len(tasks) // 2].cancel()
                await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await asyncio.gather(*tasks, return_exceptions=True)
        assert not [task for task in tasks if not task.cancelled() and task.exception()]
        assert len(turns) == 0

    asyncio.run(scenario())


async def test_a_call_that_waits_for_a_place_of_its_tool_holds_its_key_only() -> None:
    turns = Turns()
    line = CallLine(turns, "pay", ConcurrencyKey("order {id}"), 1)
    async with line.turn("acme", {"id": 1}, "one"):
        other = asyncio.create_task(_enter(line, {"id": 2}))
        await settle()
        assert not other.done()
        async with asyncio.timeout(5), line.turn("other tenant", {"id": 1}, "two"):
            pass
    await other
    assert len(turns) == 0


async def _enter(line: CallLine, arguments: dict[str, object]) -> None:
    async with line.turn("acme", arguments, "three"):
        pass


async def test_a_deferred_call_keeps_its_turn_until_it_is_released_and_only_once() -> None:
    turns = Turns()
    line = CallLine(turns, "pay", ConcurrencyKey("all"), 1)
    async with line.turn("acme", {}, "one") as turn:
        turns.keep(turn, "run", now_ms() + 60_000)
        assert turn.shared == [("key", "all"), ("tool", "pay")]
    behind = asyncio.create_task(_enter(line, {}))
    await settle()
    assert not behind.done()
    turns.release("one")
    turns.release("one")
    turns.release_run("run")
    await behind
    assert len(turns) == 0


async def test_a_call_whose_tool_called_back_before_it_said_later_keeps_nothing() -> None:
    turns = Turns()
    line = CallLine(turns, "pay", ConcurrencyKey("all"), None)
    async with line.turn("acme", {}, "one") as turn:
        turns.release("one")
        turns.keep(turn, "run", now_ms() + 60_000)
    assert len(turns) == 0


async def test_turns_taken_back_are_held_whoever_else_is_inside_and_end_with_their_run_or_their_time() -> None:
    turns = Turns()
    for call_id, run_id in (("one", "first"), ("two", "first"), ("three", "second")):
        turns.take_back(call_id, run_id, [KEY], now_ms() + 60_000)
    turns.take_back("four", "second", [KEY], now_ms() - 60_000)  # over long ago
    behind = asyncio.create_task(turns.take(KEY, 1))
    turns.release_run("first")
    await settle()
    assert not behind.done()
    turns.take_back("five", "third", [KEY], now_ms() + 10)
    turns.release_run("second")
    async with asyncio.timeout(5):
        await behind  # the deadline of the fifth
    turns.leave(KEY)
    assert len(turns) == 0


@pytest.mark.parametrize(
    ("text", "arguments", "key"),
    [
        ("order", {}, "order"),
        ("order {id}", {"id": "A-1"}, "order A-1"),
        ("{a}/{b}", {"a": 3.0, "b": 3}, "3/3"),
        ("{a}", {"a": {"z": 1, "b": [True, None]}}, '{"b":[true,null],"z":1}'),
        ("{a}|", {}, "|"),
        ("{{{a}}}", {"a": "x"}, "{x}"),
    ],
)
def test_a_key_is_filled_in_with_canonical_text(text: str, arguments: dict[str, object], key: str) -> None:
    assert ConcurrencyKey(text).of(arguments) == key


def test_a_very_long_key_is_kept_as_its_hash() -> None:
    key = ConcurrencyKey("{a}")
    long = [key.of({"a": "x" * 100_000 + end}) for end in "ab"]
    assert [len(text) for text in long] == [64, 64]
    assert long[0] != long[1]


@pytest.mark.parametrize("text", ["{", "}", "a {b", "{a}}", "{a{b}}"])
def test_a_brace_without_its_pair_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ConcurrencyKey(text)
