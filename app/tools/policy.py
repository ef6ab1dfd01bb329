"""The policy of the server: a plugin that is asked about every call, behind a wall that lets no fault of it through as a yes."""

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, cast

import structlog

from app.core.ids import new_id
from app.core.leash import leashed
from app.core.plugins import PluginError, load_plugins
from app.core.values import immutable
from app.tools.policy_api import PolicyRequest, PolicyVerdict, ToolPolicy
from app.tools.result import printable

ENTRY_POINT_GROUP = "runwire.tool_policies"

ANSWER_S = 10.0
"""How long a policy may think."""

THREADS = 16
"""How many synchronous policies think at once; more wait their turn, which counts as thinking."""

MAX_REASON = 500
"""Characters of a reason that are kept."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@immutable
class PolicyRuling:
    """What became of asking. `failed`: it raised, was too slow or answered nonsense, which denies."""

    verdict: Literal["allow", "deny", "ask", "failed"]
    reason: str = ""


class Policy:
    """One policy, ready to be asked."""

    def __init__(self, plugin: ToolPolicy, *, answer_s: float = ANSWER_S) -> None:
        self.name = plugin.name
        self._function: Callable[[PolicyRequest], object] = plugin.function
        self._is_async = inspect.iscoroutinefunction(plugin.function)
        self._answer_s = answer_s
        self._threads = None if self._is_async else ThreadPoolExecutor(THREADS, thread_name_prefix="runwire-policy")

    @classmethod
    def load(cls, name: str, plugins: Sequence[str] = (), *, entry_points: bool = True) -> "Policy":
        """From `module[:attr]` names and the entry points of group `runwire.tool_policies`.

        Raises `PluginError`: none or two of that name.
        """
        found = load_plugins(ToolPolicy, plugins, ENTRY_POINT_GROUP if entry_points else None)
        named = [plugin for plugin in found if plugin.name == name]
        if len(named) != 1:
            there = ", ".join(sorted(plugin.name for plugin in found)) or "none"
            problem = "There is no tool policy" if not named else "There are two tool policies"
            raise PluginError(f"{problem} named {name!r} (RUNWIRE_TOOL_POLICY); the plugins have: {there}.")
        return cls(named[0])

    async def ask(self, request: Callable[[], PolicyRequest]) -> PolicyRuling:
        """The ruling on a call. Raises only cancellation: whatever else happens denies."""
        request_id = new_id()
        try:
            async with asyncio.timeout(self._answer_s):
                ruling = _read(await leashed(self._answer(request()), "policy", self.name))
        except TimeoutError:
            _log.error("tool_policy_failed", policy=self.name, request_id=request_id, error="it took too long")
            return PolicyRuling("failed", f"no answer in time (request {request_id})")
        except Exception:  # noqa: BLE001  # the named boundary: foreign code behind it, and it fails closed
            _log.exception("tool_policy_failed", policy=self.name, request_id=request_id)
            return PolicyRuling("failed", f"it failed (request {request_id})")
        if ruling is None:
            _log.error("tool_policy_failed", policy=self.name, request_id=request_id, error="no verdict")
            return PolicyRuling("failed", f'it answered neither "allow", "deny" nor "ask" (request {request_id})')
        return ruling

    def close(self) -> None:
        """Let the threads go; a function that still runs in one is not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, request: PolicyRequest) -> object:
        if self._threads is None:
            return await cast("Awaitable[object]", self._function(request))
        context = contextvars.copy_context()
        answer = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: context.run(self._function, request)
        )
        return await cast("Awaitable[object]", answer) if inspect.isawaitable(answer) else answer


def _read(answer: object) -> PolicyRuling | None:
    """The ruling in an answer; `None` for what is none. Only the exact words count: no truth value is a yes."""
    verdict, reason = answer, ""
    if isinstance(answer, tuple):
        parts = cast("tuple[object, ...]", answer)
        if len(parts) != 2 or not isinstance(parts[1], str):
            return None
        verdict, reason = parts[0], printable(parts[1][:MAX_REASON])
    if isinstance(verdict, str) and verdict in ("allow", "deny", "ask"):
        return PolicyRuling(cast("PolicyVerdict", str(verdict)), reason)
    return None
