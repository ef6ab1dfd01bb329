"""The tracing environment: what the standard OTEL_ variables ask for, before anything of OpenTelemetry is loaded."""

from collections.abc import Mapping
from urllib.parse import urlsplit

EXPORTERS = ("otlp", "console")
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CONTENT_ON = frozenset(("true", "1", "span_only", "span_and_event"))


class TracingError(Exception):
    """The OTEL_ environment asks for what there is not. The message names the variable; it holds no secret."""


def wanted_exporters(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Which of `EXPORTERS` are asked for. Without OTEL_TRACES_EXPORTER an endpoint asks for `otlp`. Raises `TracingError`."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    endpoint, variable = _endpoint(environ)
    given = [name.strip().lower() for name in environ.get("OTEL_TRACES_EXPORTER", "").split(",") if name.strip()]
    names = given or (["otlp"] if endpoint else [])
    if "none" in names:
        return ()
    unknown = next((name for name in names if name not in EXPORTERS), None)
    if unknown is not None:
        raise TracingError(
            f"OTEL_TRACES_EXPORTER={unknown[:40]} is not supported; there are none, {', '.join(EXPORTERS)}."
        )
    if "otlp" in names:
        _check_protocol(environ)
        address = urlsplit(endpoint)
        if endpoint and (address.scheme not in ("http", "https") or not address.hostname):
            raise TracingError(f"{variable} must be an http:// or https:// address.")
    return tuple(dict.fromkeys(names))


def wants_content(environ: Mapping[str, str]) -> bool:
    """Whether prompts, answers, arguments and results go into spans: off unless it is asked for."""
    return environ.get(CONTENT, "").strip().lower() in _CONTENT_ON


def _endpoint(environ: Mapping[str, str]) -> tuple[str, str]:
    for variable in ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        endpoint = environ.get(variable, "").strip()
        if endpoint:
            return endpoint, variable
    return "", ""


def _check_protocol(environ: Mapping[str, str]) -> None:
    for variable in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = environ.get(variable, "").strip().lower()
        if protocol and protocol != "http/protobuf":
            raise TracingError(
                f"{variable}={protocol[:40]} is not supported: spans go out as http/protobuf (usually to port 4318)."
            )
        if protocol:
            return
