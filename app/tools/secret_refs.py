"""The secrets of a spec: taken out of it into the secret store, references left in their place, and read back."""

import re
from collections.abc import Mapping, Sequence
from typing import cast

from app.core.registry import SecretStore
from app.core.values import immutable
from app.tools.signing import new_secret
from app.tools.spec import ToolSpec

_SECRET_HEADER = re.compile(r"key|token|secret|auth|cookie|password|credential|signature", re.IGNORECASE)
"""Headers whose values are kept like tokens: encrypted, and never shown again."""


@immutable
class StoredSpec:
    """A spec that may be kept anywhere."""

    spec: dict[str, object]
    fresh: tuple[str, ...]
    """References made for it just now."""
    made: bool
    """Whether a signing secret came into being or was given, so that it is to be shown."""


@immutable
class Secrets:
    """What the references of a spec stand for."""

    signing: str | None
    token: str | None
    headers: Mapping[str, str]


class SpecSecrets:
    """Moves secrets between specs and the store."""

    def __init__(self, store: SecretStore) -> None:
        self._store = store

    async def put(
        self, tenant: str, spec: ToolSpec, *, made: bool, old: Mapping[str, object] | None = None
    ) -> StoredSpec:
        """`made`: whether a missing signing secret is made. `old`: the spec that is replaced, whose secrets stay."""
        fresh: list[str] = []

        async def keep(value: str) -> dict[str, object]:
            ref = await self._store.put(tenant, value)
            fresh.append(ref)
            return {"secret_ref": ref}

        body = spec.to_json()
        http = cast("dict[str, object] | None", body["http"])
        before = cast("Mapping[str, object]", (old or {}).get("http") or {})
        if spec.http is not None and http is not None:
            if spec.http.auth is not None:
                token = spec.http.auth.token
                http["auth"] = {"type": "bearer", "token": await keep(token)} if token else before.get("auth")
            http["headers"] = {
                name: await keep(value) if _SECRET_HEADER.search(name) else value
                for name, value in spec.http.headers.items()
            }
        signing = (old or {}).get("signing_secret")
        show = False
        if spec.signing_secret is not None:
            signing, show = await keep(spec.signing_secret), True
        elif signing is None and made:
            signing, show = await keep(new_secret()), True
        body["signing_secret"] = signing
        return StoredSpec(body, tuple(fresh), show)

    async def reveal(self, tenant: str, spec: Mapping[str, object]) -> Secrets | None:
        """Read the secrets back; `None` when one of them is gone (its tool was deleted)."""
        http = cast("Mapping[str, object]", spec["http"] or {})
        auth = cast("Mapping[str, object]", http.get("auth") or {})
        headers = cast("Mapping[str, object]", http.get("headers") or {})
        found: list[str | None] = []
        for value in (spec.get("signing_secret"), auth.get("token"), *headers.values()):
            ref = _ref(value)
            plain = value if isinstance(value, str) else None
            if ref is not None:
                plain = await self._store.get(tenant, ref)
                if plain is None:
                    return None
            found.append(plain)
        values = dict(zip(headers, cast("list[str]", found[2:]), strict=True))
        return Secrets(found[0], found[1], values)

    def refs(self, spec: Mapping[str, object]) -> tuple[str, ...]:
        """All references in a stored spec."""
        http = cast("Mapping[str, object]", spec["http"] or {})
        auth = cast("Mapping[str, object]", http.get("auth") or {})
        headers = cast("Mapping[str, object]", http.get("headers") or {})
        values = (spec.get("signing_secret"), auth.get("token"), *headers.values())
        return tuple(ref for ref in map(_ref, values) if ref is not None)

    async def forget(self, tenant: str, refs: Sequence[str]) -> None:
        for ref in refs:
            await self._store.delete(tenant, ref)


def _ref(value: object) -> str | None:
    if isinstance(value, dict):
        return cast("str", cast("dict[str, object]", value).get("secret_ref"))
    return None
