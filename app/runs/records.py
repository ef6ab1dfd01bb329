"""Rows of runs and their journal, as values. Times are milliseconds since the epoch, UTC."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from app.agent.ports import StepStatus, WholeResult
from app.agent.records import StopReason
from app.core.values import immutable
from app.runs.status import RunStatus
from app.tools.dispatch import Dispatch
from app.tools.port import Switch

OnDisconnect = Literal["continue", "cancel"]
Parking = Literal["people", "tools"]
Displacement = Literal["interrupt", "rollback"]
CheckpointSource = Literal["input", "loop", "update", "fork"]
"""What made a checkpoint: a run's input, its loop, a caller's update, a fork from another thread."""


@dataclass(slots=True)
class RunRecord:
    """A row of `runs`. The driver that holds the newest epoch is its only writer, cancel flag apart."""

    id: str
    tenant: str
    thread_id: str
    agent: str | None
    """The registered agent's name; `None` for an inline one."""
    spec: dict[str, object]
    """The pinned agent: `{"agent": AgentSpec, "agent_version": int | None, "model": …, "tools": [pin, …]}`; secrets are references."""
    input: object
    context: dict[str, object]
    metadata: dict[str, object]
    subject: str
    scopes: list[str] | None
    """The caller: its principal is (tenant, subject, scopes)."""
    on_disconnect: OnDisconnect = "continue"
    status: RunStatus = "pending"
    stop_reason: StopReason | None = None
    output: dict[str, object] | None = None
    error: dict[str, object] | None = None
    interrupts: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    """What callers are asked and have not answered yet, as the `interrupt` event tells it."""
    epoch: int = 0
    """Raised by each claim. An append with an older epoch writes nothing."""
    owner: str | None = None
    heartbeat: int = 0
    cancel_requested: bool = False
    attempt: int = 0
    active_ms: int = 0
    base_checkpoint_id: str | None = None
    """The thread's state that the run started from; `None` on a new thread."""
    checkpoint_id: str | None = None
    """The newest checkpoint of this run."""
    before: int = 0
    """How many messages the conversation had before the run's first round (history and input)."""
    last_seq: int = 0
    batches: int = 0
    """Journal rows written so far; the next row's `batch` is this + 1."""
    iterations: int = 0
    steps: int = 0
    usage: dict[str, object] = field(default_factory=dict[str, object])
    created_at: int = 0
    started_at: int | None = None
    finished_at: int | None = None
    traceparent: str | None = None
    """The caller's W3C trace context, as it came (valid); `None` when it sent none."""
    parked: "Parking | None" = None
    """What the run waits for, or waited for when this claim took it up: people or callers, or tools by their callbacks."""
    tracestate: str | None = None
    """What the caller's tracing systems keep beside it, handed on unread; never without `traceparent`."""
    queued: dict[str, object] | None = None
    """While it waits for its thread: what it brings, `{"messages", "fields", "defaults", "checkpoint_id", "displaces", "how"}`."""
    displaced: "Displacement | None" = None
    """Another run takes its place: it is cancelled, and with `rollback` the thread goes back to where it began."""


@immutable
class Checkpoint:
    """A change of a thread's state: what the reducers were given, on top of the parent's state."""

    id: str
    thread_id: str
    parent_id: str | None
    run_id: str | None
    delta: Mapping[str, object]
    """`{"messages": [message, …]}`: appended. With other fields `"fields": [[name, reducer, value], …]`, too."""
    created_at: int
    source: CheckpointSource = "loop"


CallState = Literal["proposed", "waiting", "dispatched", "done", "unknown"]


@dataclass(slots=True)
class CallRecord:
    """A row of `tool_calls`: one step of a run, from the model's intent to its recorded outcome."""

    id: str
    """Our tool call id."""
    tenant: str
    run_id: str
    thread_id: str
    step: int
    iteration: int
    message_id: str
    tool: str
    tool_input: str | dict[str, object]
    log: str
    created_at: int
    provider_call_id: str | None = None
    refusal: str | None = None
    tool_version: int | None = None
    effect: str | None = None
    arguments_sha256: str | None = None
    idempotency_key: str | None = None
    state: CallState = "proposed"
    attempts: int = 0
    """Dispatches recorded. Each is journaled before its request is sent."""
    token_sha256: str | None = None
    status: StepStatus | None = None
    observation: object = None
    error: Mapping[str, object] | None = None
    envelope: Mapping[str, object] | None = None
    attempt_log: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])
    chain: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])
    started_at: int | None = None
    duration_ms: float | None = None
    reconciled: Mapping[str, object] | None = None
    """What was found out later about a call that ended `unknown`; the outcome itself stays as it was told."""
    wait: dict[str, object] | None = None
    """What it waits for (`app.agent.ports.Waiting` as JSON); kept afterwards."""
    wait_until: int | None = None
    answer: dict[str, object] | None = None
    """What a person or the caller decided; `None` while nobody has."""
    late_result: dict[str, object] | None = None
    """What the tool answered by its callback."""
    command: dict[str, object] | None = None
    """`{"update", "goto"}` of its result, where it has any: for the close of its round."""
    sent_input: dict[str, object] | None = None
    """What was sent instead of `tool_input`: a person's edit, or what coercion made of it. The tool's constants are in neither."""
    asked_version: int | None = None
    """The newest version of the tool's name when the call began to wait: an approval is for that one."""


@immutable
class CallWait:
    """A call begins to wait."""

    id: str
    wait: Mapping[str, object]
    attempt_log: tuple[Mapping[str, object], ...]
    chain: tuple[Mapping[str, object], ...]


@immutable
class Interrupt:
    """A row of `interrupts`: a question to a person or caller that one call waits for."""

    id: str
    run_id: str
    tool_call_id: str
    reason: str
    shown: Mapping[str, object]
    """The item of the `interrupt` event."""
    created_at: int
    expires_at: int


@immutable
class CallResult:
    """The end of a call, written with its `step` event."""

    id: str
    state: CallState
    status: StepStatus
    observation: object
    error: Mapping[str, object] | None
    envelope: Mapping[str, object]
    attempt_log: tuple[Mapping[str, object], ...]
    chain: tuple[Mapping[str, object], ...]
    started_at: int | None
    duration_ms: float
    whole: WholeResult | None = None
    command: Mapping[str, object] | None = None


@immutable
class Progress:
    """The run's projection after a batch."""

    iterations: int
    steps: int
    usage: Mapping[str, object]
    active_ms: int


@immutable
class Transition:
    """A change of status, in the transaction of the events that tell it."""

    status: RunStatus
    stop_reason: StopReason | None
    output: Mapping[str, object] | None
    error: Mapping[str, object] | None
    finished_at: int | None
    """Set on a terminal status: the thread's head then moves to the run's newest checkpoint."""
    parked: Parking | None = None
    """The run is let go: nobody drives it until it is woken."""


@immutable
class Batch:
    """A row of the journal: consecutive events, already encoded.

    `index` holds one `(type, offset)` per event, offsets into `wire`; event i has the id `first_seq + i`. A row without
    events (`n == 0`) has only `private` records and takes no ids; its `first_seq` is the run's last one + 1.
    """

    first_seq: int
    n: int
    wire: bytes
    index: tuple[tuple[str, int], ...]

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.n - 1


@immutable
class Append:
    """What one transaction adds to a run. All of it or nothing, and nothing under an old epoch."""

    run_id: str
    thread_id: str
    epoch: int
    batch: int
    """The row's number within the run, 1, 2, 3, …"""
    events: Batch
    private: tuple[Mapping[str, object], ...] = ()
    progress: Progress | None = None
    transition: Transition | None = None
    checkpoint: Checkpoint | None = None
    calls: tuple[CallRecord, ...] = ()
    results: tuple[CallResult, ...] = ()
    dispatches: tuple[Dispatch, ...] = ()
    waits: tuple[CallWait, ...] = ()
    interrupts: tuple[Interrupt, ...] = ()
    """New questions; the run's `interrupts` then lists all that are pending."""


DispatchVerdict = Literal["sent", "cancelled", "withdrawn", "void"] | Switch
"""`void`: the approval is. A `Switch` stopped it: the tool, or all of the tenant's, is switched off."""


@immutable
class AppendResult:
    """`fenced`: nothing was written. `dispatches`: a verdict each, in order; a refused one left no record."""

    fenced: bool
    cancel_requested: bool = False
    dispatches: tuple[DispatchVerdict, ...] = ()
    unasked: bool = False
    """Nothing was written: it would have let the run go until people answer, and nobody is asked any more."""
    next_run: str | None = None
    """The run that had waited for this one's thread, and has it now: pending, to be submitted."""
