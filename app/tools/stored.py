"""A stored spec made ready to run. It was checked when it was registered, so it is only taken apart here."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import httpx

from app.agent.ports import ToolDefinition
from app.tools.approval import rule_of
from app.tools.attempt import Executor, Send, Sending
from app.tools.coercion import Coercion
from app.tools.compiled import CompiledTool, shown_parameters, text_key_of
from app.tools.concurrency_key import ConcurrencyKey
from app.tools.http_callback import HttpExecutor, HttpTarget, HttpToolClient, StatusExecutor
from app.tools.plugin_api import Effect
from app.tools.schema import ArgumentSchema
from app.tools.secret_refs import Secrets
from app.tools.turns import CallLine


def compile_stored(
    spec: Mapping[str, object],
    secrets: Secrets,
    version: int | None,
    client: HttpToolClient,
    *,
    approve_writes: bool = False,
) -> CompiledTool:
    """`version`: `None` for an inline tool. `approve_writes`: what a tool asks for that does not say so itself."""
    http = cast("Mapping[str, object] | None", spec["http"])
    constants = cast("dict[str, object]", spec["constants"])
    parameters = shown_parameters(cast("Mapping[str, object]", spec["parameters"]), constants)
    name = cast("str", spec["name"])
    limit = cast("int", spec["max_result_bytes"])
    output = cast("Mapping[str, object] | None", spec.get("output_schema"))
    status_url = cast("str | None", spec.get("status_url"))
    target = None if http is None else _target(http, secrets, limit)
    approval = rule_of(approval_of(spec, approve_writes=approve_writes))
    return CompiledTool(
        name=name,
        source="inline" if version is None else "registered",
        version=version,
        definition=ToolDefinition(name, cast("str", spec["description"]), parameters),
        schema=ArgumentSchema(parameters),
        executor=BY_CALLER if target is None else HttpExecutor(client, target),
        by_caller=target is None,
        approval=() if approval is None else (approval,),
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
        output_schema=output,
        line=_line(spec, name, client),
        status=None
        if status_url is None or target is None
        else StatusExecutor(client, _status_target(target, httpx.URL(status_url))),
    )


def approval_of(spec: Mapping[str, object], *, approve_writes: bool) -> object:
    """A spec's `requires_approval`, or the server's default for it.

    The default does not ask about a tool of the caller: whoever runs it decides by that.
    """
    setting = spec.get("requires_approval")
    by_default = approve_writes and spec["effect"] == "write" and spec["http"] is not None
    return by_default if setting is None else setting


def _target(http: Mapping[str, object], secrets: Secrets, limit: int) -> HttpTarget:
    return HttpTarget(
        url=httpx.URL(cast("str", http["url"])),
        method=cast("str", http["method"]),
        headers={name.lower(): value for name, value in secrets.headers.items()},
        token=secrets.token,
        keys=secrets.keys,
        max_result_bytes=limit,
    )


class _ByCaller:
    """Nothing is ever sent for a tool that the caller runs."""

    def prepare(self, sending: Sending) -> Send:
        raise NotImplementedError(f"{sending.tool} is run by the caller")


BY_CALLER: Executor = _ByCaller()


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
