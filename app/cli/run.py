"""The work of `runwire run`: one run, posted to a server, and followed to its end."""

from dataclasses import dataclass
from typing import cast

from app.cli import exits
from app.cli.following import follow_asking
from app.cli.inputs import UsageError, json_argument, split
from app.cli.presses import counted_presses
from app.cli.session import Session


@dataclass(frozen=True, slots=True)
class RunWanted:
    """What the command line says."""

    input: str | None
    input_json: str | None = None
    agent: str | None = None
    model: str | None = None
    tools: tuple[str, ...] = ()
    instructions: str | None = None
    thread_id: str | None = None
    metadata: tuple[str, ...] = ()
    """`name=value`, as given."""

    def agent_spec(self) -> str | dict[str, object]:
        """A registered agent, an inline one, or the demo agent. Raises `UsageError`."""
        if self.model is None:
            if self.tools or self.instructions is not None:
                raise UsageError("--tool and --instructions describe an agent of their own: add --model.")
            return self.agent or "demo"
        if self.agent is not None:
            raise UsageError("Give --agent or --model, not both.")
        spec: dict[str, object] = {"model": self.model, "tools": list(self.tools)}
        return spec if self.instructions is None else {**spec, "instructions": self.instructions}

    def given_input(self) -> str | dict[str, object]:
        """Raises `UsageError`."""
        if (self.input is None) == (self.input_json is None):
            raise UsageError("Give what the agent is asked: INPUT, or --input-json.")
        if self.input_json is None:
            return cast("str", self.input)
        value = json_argument(self.input_json, "--input-json")
        if not isinstance(value, str | dict):
            raise UsageError('--input-json takes a JSON object, such as {"messages": […]}, or a text.')
        return cast("str | dict[str, object]", value)


async def post(session: Session, wanted: RunWanted, *, detach: bool, ask: bool = False) -> int:
    """Post the run and follow it; `detach`: only print its id. `ask`: what it asks is asked here.

    Raises `UsageError`, `ClientError`.
    """
    if ask:
        _check_asking(detach)
    agent, given = wanted.agent_spec(), wanted.given_input()
    thread, metadata = wanted.thread_id, dict(split(wanted.metadata, "--metadata")) or None
    if detach:
        run = await session.client.runs.create(agent, given, thread_id=thread, metadata=metadata)
        if session.screen.as_json:
            session.screen.json(run.data)
        else:
            session.screen.line(run.id)
        return exits.SUCCESS
    async with (
        session.patient() as client,
        client.runs.stream(agent, given, thread_id=thread, metadata=metadata) as stream,
    ):
        with counted_presses() as presses:
            return await follow_asking(session, client, stream, presses, ask=ask)


def _check_asking(detach: bool) -> None:
    from app.cli.asking import check_terminal

    if detach:
        raise UsageError("Give --ask or --detach, not both.")
    check_terminal()
