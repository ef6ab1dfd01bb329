"""The work of `runwire models` and `runwire info`."""

from collections.abc import Mapping
from typing import cast

from app.cli.layout import Column
from app.cli.listing import as_said, text_of
from app.cli.session import Session, say
from app.cli.text import one_line

FIRST = ("name", "provider", "model")


async def list_models(session: Session) -> None:
    """The models with the columns that this server tells of them."""
    found = [as_said(model) async for model in session.client.models.iterate()]
    screen = session.screen
    if screen.as_json:
        for model in found:
            screen.json_line(model)
        return
    names = list(dict.fromkeys((*FIRST, *(name for model in found for name in model))))
    names = [name for name in names if any(model.get(name) is not None for model in found)]
    columns = [
        Column(name.upper(), 0 if name == "name" else at, cut=name not in FIRST) for at, name in enumerate(names)
    ]
    if not found:
        say(
            "No model has a name here. Agents name others as provider:model; the operator names some by RUNWIRE_MODELS."
        )
        return
    screen.table(columns, [[one_line(model.get(name), 200) for name in names] for model in found])


async def show_info(session: Session) -> None:
    info = as_said(await session.client.info())
    if session.screen.as_json:
        session.screen.json(info)
        return
    session.screen.fields([("server", session.url), *((name, _value(info, name)) for name in info)])


def _value(info: Mapping[str, object], name: str) -> object:
    value = info[name]
    if isinstance(value, list):
        items = cast("list[object]", value)
        return ", ".join(str(item) for item in items) if all(isinstance(item, str) for item in items) else items
    return text_of(info, name) if isinstance(value, str | int | float) else value
