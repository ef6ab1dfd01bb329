"""A stored spec made ready to run. It was checked when it was registered, so it is only taken apart here."""

from collections.abc import Mapping
from typing import cast

import httpx

from app.agent.ports import ToolDefinition
from app.tools.compiled import CompiledTool, shown_parameters, text_key_of
from app.tools.http_callback import HttpExecutor, HttpTarget, HttpToolClient
from app.tools.plugin_api import Effect
from app.tools.schema import ArgumentSchema
from app.tools.secret_refs import Secrets
from app.tools.signing import key_of


def compile_stored(
    spec: Mapping[str, object], secrets: Secrets, version: int | None, client: HttpToolClient
) -> CompiledTool:
    """`version`: `None` for an inline tool."""
    http = cast("Mapping[str, object]", spec["http"])
    constants = cast("dict[str, object]", spec["constants"])
    parameters = shown_parameters(cast("Mapping[str, object]", spec["parameters"]), constants)
    name = cast("str", spec["name"])
    limit = cast("int", spec["max_result_bytes"])
    target = HttpTarget(
        url=httpx.URL(cast("str", http["url"])),
        method=cast("str", http["method"]),
        headers={name.lower(): value for name, value in secrets.headers.items()},
        token=secrets.token,
        keys=() if secrets.signing is None else (key_of(secrets.signing),),
        max_result_bytes=limit,
    )
    return CompiledTool(
        name=name,
        source="inline" if version is None else "registered",
        version=version,
        definition=ToolDefinition(name, cast("str", spec["description"]), parameters),
        schema=ArgumentSchema(parameters),
        executor=HttpExecutor(client, target),
        effect=cast("Effect", spec["effect"]),
        idempotent=cast("bool", spec["idempotent"]),
        scopes=tuple(cast("list[str]", spec["scopes"])),
        return_direct=cast("bool", spec["return_direct"]),
        constants=constants,
        timeout_s=cast("float", spec["timeout_s"]),
        deadline_s=cast("float", spec["deadline_s"]),
        max_attempts=cast("int", cast("Mapping[str, object]", spec["retry"])["max_attempts"]),
        max_result_bytes=limit,
        text_key=text_key_of(parameters),
    )
