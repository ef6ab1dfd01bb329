"""The secrets that a server process has from its settings and its environment: what its log must never show."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from app.settings import Settings

_NAMES = re.compile(r"(?i)(key|token|secret|passw(or)?d|credentials?)$")
"""Variables whose values are taken for secrets, also those of plugins and libraries."""

MIN_FOREIGN = 12
"""Characters; a shorter value of a variable that is not ours may well be a word."""


def known_secrets(settings: Settings, environ: Mapping[str, str]) -> set[str]:
    """Every value that must not be written. Nothing is checked here: what cannot be read is no secret yet."""
    found = set(_of_settings(settings)) | set(_of_aliases(settings.models.get_secret_value(), environ))
    for name, value in environ.items():
        if _NAMES.search(name) and len(value) >= MIN_FOREIGN:
            found.add(value)
        if name.startswith("OTEL_EXPORTER_OTLP") and name.endswith("HEADERS"):
            found |= {unquote(pair.partition("=")[2].strip()) for pair in value.split(",")}
    return {secret for secret in found if secret}


def _of_settings(settings: Settings) -> Iterator[str]:
    for name in type(settings).model_fields:
        value: object = getattr(settings, name)
        if isinstance(value, SecretStr) and name not in ("api_keys", "models"):
            yield value.get_secret_value()
    for entry in settings.api_keys.get_secret_value().split(","):
        yield entry.strip().partition(":")[0]
    try:
        password = urlsplit(settings.database_url).password
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)


def _of_aliases(text: str, environ: Mapping[str, str]) -> Iterator[str]:
    try:
        aliases: object = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return
    for alias in cast("dict[str, object]", aliases).values() if isinstance(aliases, dict) else ():
        if not isinstance(alias, dict):
            continue
        fields = cast("dict[str, object]", alias)
        yield environ.get(str(fields.get("api_key_env")), "")
        try:
            yield Path(str(fields["api_key_file"])).read_text(encoding="utf-8").strip()
        except (KeyError, OSError, ValueError):
            continue
