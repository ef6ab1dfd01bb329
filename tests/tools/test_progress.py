"""Reports of a call's progress: a burst, then fewer the longer the call takes."""

from app.core.clock import now_ms
from app.tools.progress import BURST, CALLS, Reports, ReportsOfCalls

DAY_S = 86_400


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def kept(reports: Reports, clock: Clock, seconds: float, every: float) -> int:
    """How many of the reports that come in this time are kept."""
    count, end = 0, clock.now + seconds
    while clock.now < end:
        count += reports.take()
        clock.now += every
    return count


def test_a_burst_is_kept_and_then_ten_a_second() -> None:
    clock = Clock()
    reports = Reports(now_ms(), clock)
    assert [reports.take() for _ in range(BURST + 1)] == [True] * BURST + [False]
    assert kept(reports, clock, 10, 0.01) in range(98, 102)
    clock.now += 3600
    assert sum(reports.take() for _ in range(100)) == BURST


def test_a_day_of_reports_is_two_thousand() -> None:
    clock = Clock()
    assert 1500 < kept(Reports(now_ms(), clock), clock, DAY_S, 0.05) < 2500


def test_a_call_that_a_restart_took_up_is_as_old_as_it_is() -> None:
    clock = Clock()
    reports = Reports(now_ms() - DAY_S * 1000, clock)
    assert kept(reports, clock, 3600, 1) in range(17, 20)  # a burst, and one in 432 s


def test_a_clock_that_was_set_back_and_reports_that_were_not_told_cost_nothing() -> None:
    clock = Clock()
    reports = Reports(now_ms() + 10_000_000, clock)
    for _ in range(100):
        assert reports.take()
        reports.give_back()


def test_calls_are_counted_apart_and_not_for_ever() -> None:
    calls = ReportsOfCalls()
    first = calls.of("first", now_ms())
    for number in range(CALLS - 1):
        calls.of(str(number), now_ms())
    assert calls.of("first", now_ms()) is first
    calls.of("one more", now_ms())
    assert calls.of("first", now_ms()) is first
    for number in range(CALLS):
        calls.of(f"new {number}", now_ms())
    assert calls.of("first", now_ms()) is not first
