"""The secrets of a spec: taken out of it into the secret store, references left in their place, and read back."""

import re
from collections.abc import Mapping, Sequence
from typing import cast
from weakref import WeakValueDictionary

from app.core.errors import Conflict
from app.core.idempotency import IdempotencyKey
from app.core.registry import SecretStore
from app.core.values import immutable
from app.tools.port import SigningSecret, SigningStore
from app.tools.signing import RotatingKeys, key_of, new_secret
from app.tools.spec import ToolSpec

_SECRET_HEADER = re.compile(r"key|token|secret|auth|cookie|password|credential|signature", re.IGNORECASE)
"""Headers whose values are kept like tokens: encrypted, and never shown again."""


def is_secret_header(name: str) -> bool:
    """Whether the value of a header is kept like a token."""
    return _SECRET_HEADER.search(name) is not None


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
    """The newest signing secret."""
    token: str | None
    headers: Mapping[str, str]
    keys: Sequence[bytes] = ()
    """What calls are signed with; follows rotations."""


class SpecSecrets:
    """Moves secrets between specs and the store."""

    def __init__(self, store: SecretStore, rotations: SigningStore | None = None) -> None:
        self._store = store
        self._rotations = rotations
        self._rotating: WeakValueDictionary[tuple[str, str], RotatingKeys] = WeakValueDictionary()

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
                name: await keep(value) if is_secret_header(name) else value
                for name, value in spec.http.headers.items()
            }
        signing = (old or {}).get("signing_secret")
        show = False
        if spec.signing_secret is not None:
            signing, show = await keep(spec.signing_secret), True
        elif spec.http is None:
            signing = None  # nothing is ever sent that it could sign
        elif signing is None and made:
            signing, show = await keep(new_secret()), True
        body["signing_secret"] = signing
        return StoredSpec(body, tuple(fresh), show)

    async def reveal(self, tenant: str, spec: Mapping[str, object]) -> Secrets | None:
        """Read the secrets back; `None` when one of them is gone (its tool was deleted)."""
        http = cast("Mapping[str, object]", spec["http"] or {})
        auth = cast("Mapping[str, object]", http.get("auth") or {})
        headers = cast("Mapping[str, object]", http.get("headers") or {})
        family = _ref(spec.get("signing_secret"))
        signing = [] if family is None else await self._signing(tenant, family)
        if family is not None and not signing:
            return None
        found: list[str | None] = []
        for value in (auth.get("token"), *headers.values()):
            ref = _ref(value)
            plain = value if isinstance(value, str) else None
            if ref is not None:
                plain = await self._store.get(tenant, ref)
                if plain is None:
                    return None
            found.append(plain)
        values = dict(zip(headers, cast("list[str]", found[1:]), strict=True))
        if family is None:
            return Secrets(None, found[0], values)
        return Secrets(signing[0][0], found[0], values, self._keys(tenant, family, signing))

    async def rotate(
        self, tenant: str, spec: Mapping[str, object], idempotency: IdempotencyKey | None
    ) -> tuple[str | None, int, bool]:
        """The new signing secret of a tool, the end of the old one's time, and whether this was a replay.

        Rotations at the same time happen one after the other, each with its own secret. A replay has no secret where another
        rotation came since. Raises `Conflict` where its calls are not signed, `InvalidRequest` as `SigningStore.rotate`.
        """
        family = _ref(spec.get("signing_secret"))
        if family is None or self._rotations is None:
            raise Conflict("The calls of this tool are not signed; give it a signing_secret first.")
        secret: str | None = new_secret()
        fresh = await self._store.put(tenant, secret)
        try:
            made, replayed = await self._rotations.rotate(tenant, family, fresh, idempotency)
        except BaseException:
            await self._store.delete(tenant, fresh)
            raise
        if replayed:
            await self._store.delete(tenant, fresh)
            secret = None if made.ref is None else await self._store.get(tenant, made.ref)
        keys = self._rotating.get((tenant, family))
        if keys is not None:
            await keys.refresh(0.0)
        return secret, made.old_expires_at, replayed

    async def unrotated(self, tenant: str, spec: Mapping[str, object]) -> str | None:
        """The signing secret that a spec came with; `None` once a rotation has put another in its place."""
        family = _ref(spec.get("signing_secret"))
        if family is None:
            return None
        rotated = () if self._rotations is None else await self._rotations.secrets_of(tenant, family)
        return None if rotated and rotated[0].ref != family else await self._store.get(tenant, family)

    async def _signing(self, tenant: str, family: str) -> list[tuple[str, int | None]]:
        """Secrets with the ends of their times, newest first; empty when they are gone."""
        rotated = () if self._rotations is None else await self._rotations.secrets_of(tenant, family)
        found: list[tuple[str, int | None]] = []
        for secret in rotated or (SigningSecret(family, None),):
            value = await self._store.get(tenant, secret.ref)
            if value is not None:
                found.append((value, secret.expires_at))
        return found

    def _keys(self, tenant: str, family: str, signing: Sequence[tuple[str, int | None]]) -> Sequence[bytes]:
        shared = self._rotating.get((tenant, family))
        if shared is None:

            async def load() -> list[tuple[bytes, int | None]]:
                return _decoded(await self._signing(tenant, family))

            shared = self._rotating[tenant, family] = RotatingKeys(_decoded(signing), load)
        return shared

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

    async def forget_all(self, tenant: str, spec: Mapping[str, object]) -> None:
        """The secrets of a deleted tool, rotated ones too."""
        family = _ref(spec.get("signing_secret"))
        if family is not None and self._rotations is not None:
            await self._rotations.forget(tenant, family)
        await self.forget(tenant, self.refs(spec))


def _decoded(signing: Sequence[tuple[str, int | None]]) -> list[tuple[bytes, int | None]]:
    return [(key_of(secret), until) for secret, until in signing]


def _ref(value: object) -> str | None:
    if isinstance(value, dict):
        return cast("str", cast("dict[str, object]", value).get("secret_ref"))
    return None
