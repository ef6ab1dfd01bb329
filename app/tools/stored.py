"""A stored spec made ready to run. It was checked when it was registered, so it is only taken apart here."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import httpx

from app.agent.ports import ToolDefinition
from app.tools.coercion import Coercion
from app.tools.compiled import CompiledTool, shown_parameters, text_key_of
from app.tools.concurrency_key import ConcurrencyKey
from app.tools.http_callback import HttpExecutor, HttpTarget, HttpToolClient, StatusExecutor
from app.tools.plugin_api import Effect
from app.tools.schema import ArgumentSchema
from app.tools.secret_refs import Secrets
from app.tools.turns import CallLine


def compile_stored(
    spec: Mapping[str, object], secrets: Secrets, version: int | None, client: HttpToolClient
) -> CompiledTool:
    """`version`: `None` for an inline tool."""
    http = cast("Mapping[str, object]", spec["http"])
    constants = cast("dict[str, object]", spec["constants"])
    parameters = shown_parameters(cast("Mapping[str, object]", spec["parameters"]), constants)
    name = cast("str", spec["name"])
    limit = cast("int", spec["max_result_bytes"])
    output = cast("Mapping[str, object] | None", spec.get("output_schema"))
    status_url = cast("str | None", spec.get("status_url"))
    target = HttpTarget(
        url=httpx.URL(cast("str", http["url"])),
        method=cast("str", http["method"]),
        headers={name.lower(): value for name, value in secrets.headers.items()},
        token=secrets.token,
        keys=secrets.keys,
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
        coercion=Coercion(parameters) if spec.get("coerce") else None,
        output=None if output is None else ArgumentSchema(output),
        line=_line(spec, name, client),
        status=None if status_url is None else StatusExecutor(client, _status_target(target, httpx.URL(status_url))),
    )


def _line(spec: Mapping[str, object], name: str, client: HttpToolClient) -> CallLine | None:
    key = cast("str | None", spec.get("concurrency_key"))
    at_once = cast("int | None", spec.get("max_concurrency"))
    if key is None and at_once is None:
        return None
    return CallLine(client.turns, name, None if key is None else ConcurrencyKey(key), at_once)


def _status_target(target: HttpTarget, url: httpx.URL) -> HttpTarget:
    """As the tool itself; but its token and headers go nowhere else than to the origin they were given for."""
    here, there = target.url, url
    same = (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)
    return replace(
        target,
        url=url,
        method="POST",
        headers=target.headers if same else {},
        token=target.token if same else None,
    )
