"""Trimming: which of a run's steps the model still sees. What is stored stays whole."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import cast

from app.agent.observing import told_text
from app.agent.ports import PlannedCall, Round, ToolOutcome
from app.core.actions import observation_text
from app.core.values import immutable

StepResult = tuple[PlannedCall, ToolOutcome]

Kept = Sequence[tuple[Round, Sequence[StepResult]]]
"""Rounds with those of their results that are kept, oldest first; never an empty one."""

CountTokens = Callable[[str], int]

ChooseSteps = Callable[[Sequence[StepResult]], Sequence[int]]
"""A plugin's rule: all steps in call order in, the numbers of those to keep out."""


@immutable
class KeepEnds:
    """The first steps (the task's background) and the last ones (where it stands)."""

    first: int
    last: int


@immutable
class KeepTokens:
    """The first steps, then as many of the last ones as fit: all kept steps together stay within `max_tokens`."""

    max_tokens: int
    first: int


@immutable
class KeepChosen:
    choose: ChooseSteps


Trim = int | KeepEnds | KeepTokens | KeepChosen
"""A number keeps that many last steps; below 1 keeps all (AgentExecutor's rule)."""


def trim_of(setting: int | Mapping[str, object], choose: ChooseSteps | None = None) -> Trim:
    """The rule of a checked setting. `choose`: the plugin that `{"plugin": name}` names."""
    if isinstance(setting, int):
        return setting
    if "plugin" in setting:
        assert choose is not None
        return KeepChosen(choose)
    first = cast("int", setting.get("keep_first") or 0)
    if "max_tokens" in setting:
        return KeepTokens(cast("int", setting["max_tokens"]), first)
    return KeepEnds(first, cast("int", setting.get("keep_last") or 0))


def estimate_tokens(text: str) -> int:
    """About how many tokens a text is where the model's tokenizer is not known.

    Four ASCII characters a token, the rule of thumb of OpenAI's tokenizer guide for English; one token for any other
    character, as CJK texts come to (cl100k_base gives them 0.7 to 1.3).
    """
    ascii_only = len(text.encode("ascii", "ignore"))
    return ceil(ascii_only / 4) + len(text) - ascii_only


class Trimmer:
    """One run's rule, and the size of each step it has seen."""

    def __init__(self, trim: Trim = -1, count: CountTokens = estimate_tokens) -> None:
        self._trim = trim
        self._count = count
        self._sizes: list[int] = []

    def kept(self, rounds: Sequence[Round]) -> Kept | None:
        """What is kept of `rounds`, `None` = all. The cost of a call does not grow with the rounds, but for a plugin's."""
        trim = self._trim
        steps = rounds[-1].results[-1][0].step if rounds else 0
        if isinstance(trim, int):
            return None if trim < 1 or steps <= trim else _last(rounds, trim)
        if isinstance(trim, KeepEnds):
            return None if steps <= trim.first + trim.last else _ends(rounds, trim.first, trim.last)
        if isinstance(trim, KeepTokens):
            return self._within(rounds, trim, steps)
        chosen = set(trim.choose([step for item in rounds for step in item.results]))
        return _joined(rounds, lambda call: call.step in chosen)

    def _within(self, rounds: Sequence[Round], trim: KeepTokens, steps: int) -> Kept | None:
        self._measure(rounds, steps)
        left = trim.max_tokens - sum(self._sizes[: trim.first])
        last = 0
        while last < steps - trim.first and left >= self._sizes[steps - 1 - last]:
            left -= self._sizes[steps - 1 - last]
            last += 1
        if trim.first + last >= steps:
            return None
        return _ends(rounds, trim.first, last)

    def _measure(self, rounds: Sequence[Round], steps: int) -> None:
        """The size of each new step: its action and its observation as text."""
        new: list[StepResult] = []
        for item in reversed(rounds):
            if len(self._sizes) + len(new) >= steps:
                break
            new[:0] = item.results
        for call, outcome in new[len(new) - (steps - len(self._sizes)) :]:
            action = call.action
            said = action.log or observation_text(action.tool_input)
            self._sizes.append(self._count(said) + self._count(told_text(outcome)))


def _ends(rounds: Sequence[Round], first: int, last: int) -> Kept:
    head, tail = _first(rounds, first), _last(rounds, last)
    if head and tail and head[-1][0] is tail[0][0]:  # both cut through the same round
        item = head[-1][0]
        return [*head[:-1], (item, [*head[-1][1], *tail[0][1]]), *tail[1:]]
    return [*head, *tail]


def _first(rounds: Sequence[Round], count: int) -> list[tuple[Round, Sequence[StepResult]]]:
    kept: list[tuple[Round, Sequence[StepResult]]] = []
    for item in rounds:
        if count <= 0:
            break
        kept.append((item, item.results[:count]))
        count -= len(item.results)
    return kept


def _last(rounds: Sequence[Round], count: int) -> list[tuple[Round, Sequence[StepResult]]]:
    kept: list[tuple[Round, Sequence[StepResult]]] = []
    for item in reversed(rounds):
        if count <= 0:
            break
        kept.append((item, item.results[-count:]))
        count -= len(item.results)
    kept.reverse()
    return kept


def _joined(rounds: Sequence[Round], keep: Callable[[PlannedCall], bool]) -> Kept:
    kept = [(item, [step for step in item.results if keep(step[0])]) for item in rounds]
    return [(item, results) for item, results in kept if results]
