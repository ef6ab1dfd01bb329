"""The egress guard: which addresses callbacks may reach, checked at registration and again at each connection.

Built on ssrfguard, which resolves once, checks every answer and connects to the address it checked. Its table is
replaced for IPv6 (only global unicast, no translation prefix even around a public address) and sharpened for IPv4.
"""

import re
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import httpcore
import httpx
from ssrfguard import DEFAULT_DENIED, AddressTable, Block, BlockedAddressError, Policy, Reach, SSRFGuardError, Target
from ssrfguard import Resolver as Resolver
from ssrfguard.httpx import AsyncSafeBackend

from app.core.errors import FieldError, InvalidRequest

MAX_URL = 2048
"""Longest URL, in characters."""

_ANY_PORT = frozenset(range(1, 65536))
_EVERYTHING = (ip_network("0.0.0.0/0"), ip_network("::/0"))
_NUMERIC_LABEL = re.compile(r"(?:\d+|0x[0-9a-f]*)")
"""A last label like this makes the whole host an address for a resolver (WHATWG URL, "ends in a number")."""

_KEEPALIVE_S = 4.0
"""Shorter than the 5 s after which uvicorn closes an idle connection, so that we rarely send into a closing one."""


_SHARD_SIZE = 32
"""Calls at once in one connection pool."""


class EgressRefused(Exception):
    """The address may not be reached. Nothing was sent and no connection was opened."""


def _table() -> AddressTable:
    kept = [
        block
        for block in DEFAULT_DENIED.blocks
        if block.reach is Reach.DENIED or (block.network.version == 4 and str(block.network) not in _NOT_KEPT)
    ]
    known = {block.network for block in kept}
    return AddressTable((*kept, *(block for block in _EXTRA if block.network not in known)))


_NOT_KEPT = ("192.0.0.9/32", "192.0.0.10/32")
"""Anycast services inside a refused range; no tool lives there."""

_EXTRA = tuple(
    Block(ip_network(network), name, rfc, reach)
    for network, name, rfc, reach in (
        ("168.63.129.16/32", "Cloud metadata (Azure wire server)", "Azure", Reach.DENIED),
        ("::/0", "Not global unicast", "RFC4291", Reach.DENIED),
        ("2000::/3", "Global unicast", "RFC4291", Reach.PERMITTED),
        ("2001::/23", "IETF protocol assignments, Teredo", "RFC2928", Reach.DENIED),
        ("2001:db8::/32", "Documentation", "RFC3849", Reach.DENIED),
        ("2002::/16", "6to4", "RFC3056", Reach.DENIED),
        ("3fff::/20", "Documentation", "RFC9637", Reach.DENIED),
    )
)


class EgressGuard:
    """Decides about URLs and makes the transport that holds to it."""

    def __init__(self, allow: Sequence[str] = (), *, resolver: Resolver | None = None) -> None:
        """`allow`: hosts, host:port pairs and CIDRs that may be reached although private; each opens only itself.

        A host opens that name (whatever it resolves to) or that literal address; a CIDR opens its addresses, under any
        name. `resolver` stands in for `socket.getaddrinfo`; its answers are checked. Raises `ValueError`.
        """
        self._hosts: set[str] = set()
        networks: list[IPv4Network | IPv6Network] = []
        for entry in filter(None, (item.strip() for item in allow)):
            if "/" in entry:
                networks.append(ip_network(entry, strict=False))
            else:
                self._hosts.add(_allowed_host(entry))
        self._strict = _policy(networks)
        self._open = _policy(_EVERYTHING)
        self._resolver = resolver

    def check_url(self, url: str, *, pointer: str = "/http/url") -> None:
        """Raises `InvalidRequest` with code `invalid_url` or `egress_refused`. Nothing is resolved."""
        try:
            self._decide(url)
        except _Refused as refused:
            raise InvalidRequest(
                refused.message, code=refused.code, errors=(FieldError(pointer, refused.detail),)
            ) from refused

    def refusal(self, url: str) -> str | None:
        """Why a URL may not be called, `None` if it may (as far as that is known without a lookup)."""
        try:
            self._decide(url)
        except _Refused as refused:
            return refused.detail
        return None

    def allows(self, host: str, port: int) -> bool:
        """Whether the operator opened this very host (as the URL writes it) or host and port."""
        return host in self._hosts or f"{host}:{port}" in self._hosts

    def policy_for(self, host: str, port: int) -> Policy:
        return self._open if self.allows(host, port) else self._strict

    def transport(self) -> httpx.AsyncBaseTransport:
        """A transport with keep-alive for thousands of calls at once. It raises `EgressRefused` before it connects."""
        return GuardedTransport(self, self._resolver)

    def _decide(self, url: str) -> Target:
        try:
            target = self._open.check_url(url)
        except SSRFGuardError as error:
            reason = str(getattr(error, "reason", error)).split(";")[0]
            numeric = "digits and dots" in reason
            raise _Refused("egress_refused" if numeric else "invalid_url", reason[:300]) from error
        host = _bare(target.host)
        if not self.allows(host, target.port):
            self._check_host(host, target)
        try:
            other = httpx.URL(url)
        except (httpx.InvalidURL, UnicodeError) as error:
            raise _Refused("invalid_url", "cannot be parsed") from error
        if _bare(other.raw_host.decode("ascii", "replace").lower()) != host or "\\" in url:
            raise _Refused("invalid_url", "its host reads differently to different parsers")
        return target

    def _check_host(self, host: str, target: Target) -> None:
        if target.address is None and _NUMERIC_LABEL.fullmatch(host.rpartition(".")[2]):
            raise _Refused("egress_refused", "the host is an address in disguise")
        address = ip_address("127.0.0.1") if _is_local(host) else target.address
        if address is not None:
            try:
                self._strict.check_address(address)
            except BlockedAddressError as error:
                raise _Refused("egress_refused", "the address is private, special or otherwise refused") from error


class _Refused(Exception):
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.message = (
            "This URL may not be called: its address is refused."
            if code == "egress_refused"
            else "This is not a URL that can be called."
        )


class GuardedTransport(httpx.AsyncBaseTransport):
    """Connection pools that only open connections to checked addresses.

    httpcore looks through all connections of a pool at each request and each release: at 500 at once that is 5 ms of
    CPU a call. So there are many small pools; a call goes to the first with room, which keeps connections in use.
    """

    def __init__(self, guard: EgressGuard, resolver: Resolver | None) -> None:
        self._guard = guard
        self._backend = _GuardedBackend(guard, resolver)
        self._context = httpx.create_ssl_context(trust_env=False)
        self._shards: list[_Shard] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        refusal = self._guard.refusal(str(request.url))
        if refusal is not None:
            raise EgressRefused(refusal)
        shard = self._with_room()
        shard.busy += 1
        try:
            response = await shard.handle_async_request(request)
        except BaseException as error:
            shard.busy -= 1
            if isinstance(error, SSRFGuardError):
                raise EgressRefused("the name resolves to an address that is refused") from error
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Counted(response.stream, shard)
        return response

    async def aclose(self) -> None:
        for shard in self._shards:
            await shard.aclose()
        self._shards.clear()

    def _with_room(self) -> "_Shard":
        for shard in self._shards:
            if shard.busy < _SHARD_SIZE:
                return shard
        self._shards.append(_Shard(self._context, self._backend))
        return self._shards[-1]


class _Shard(httpx.AsyncHTTPTransport):
    """httpx's transport over one small pool."""

    def __init__(self, context: ssl.SSLContext, backend: httpcore.AsyncNetworkBackend) -> None:
        super().__init__(verify=context, trust_env=False)
        self.busy = 0
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=_SHARD_SIZE * 2,  # room for idle connections to other hosts
            keepalive_expiry=_KEEPALIVE_S,
            network_backend=backend,
        )


class _Counted(httpx.AsyncByteStream):
    """An answer's bytes; its place in the pool is free again when it is closed."""

    def __init__(self, stream: httpx.AsyncByteStream, shard: _Shard) -> None:
        self._stream = stream
        self._shard: _Shard | None = shard

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk

    async def aclose(self) -> None:
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.busy -= 1
        await self._stream.aclose()


class _GuardedBackend(httpcore.AsyncNetworkBackend):
    """Chooses by host and port which of two policies a connection is under."""

    def __init__(self, guard: EgressGuard, resolver: Resolver | None) -> None:
        self._guard = guard
        policies = guard.policy_for("", 0), _policy(_EVERYTHING)
        self._strict, self._open = (
            AsyncSafeBackend(policy=policy, resolver=resolver, resolver_slots=64) for policy in policies
        )

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        backend = self._open if self._guard.allows(_bare(host), port) else self._strict
        if backend is self._strict and _is_local(_bare(host)):
            host = "127.0.0.1"  # ::1 stands beside it in /etc/hosts: one CIDR in the allow-list must be enough
        try:
            return await backend.connect_tcp(host, port, timeout, local_address, socket_options)
        except UnicodeError as error:
            raise httpcore.ConnectError(f"{host!r} cannot be resolved") from error

    async def sleep(self, seconds: float) -> None:
        await self._open.sleep(seconds)


def _policy(networks: Iterable[IPv4Network | IPv6Network]) -> Policy:
    return Policy(
        denied_networks=_TABLE, allowed_networks=tuple(networks), allowed_ports=_ANY_PORT, max_url_length=MAX_URL
    )


def _bare(host: str) -> str:
    return host.strip("[]").removesuffix(".")


def _is_local(host: str) -> bool:
    """Names that mean loopback whatever the resolver says (RFC 6761)."""
    return host == "localhost" or host.endswith(".localhost")


def _allowed_host(entry: str) -> str:
    """`host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address, as the guard compares them."""
    parts = httpx.URL(f"http://{entry}" if entry.count(":") < 2 or entry[0] == "[" else f"http://[{entry}]")
    if not parts.host or parts.path not in ("", "/") or parts.userinfo:
        raise ValueError(f"egress allow-list: {entry!r} is neither a host, host:port nor a CIDR")
    host = _bare(parts.raw_host.decode().lower())
    port = re.search(r":(\d+)$", entry) if entry.count(":") == 1 or "]:" in entry else None
    return f"{host}:{port[1]}" if port else host


_TABLE = _table()
