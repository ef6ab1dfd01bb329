"""The connection: HTTP requests to one server, repeated where that is safe, and their answers checked."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import orjson

from app.client.address import Address
from app.client.errors import ClientError, ConnectionFailed, NotFound, ProblemError, UnexpectedAnswer, clean, refusal
from app.client.retries import AGAIN, UNTOUCHED, Attempts, Pause, pause_s
from app.client.values import JsonObject, NotOurs, object_of

SILENCE_S = 30.0
"""A stream says something at least every 10 s; three times that is a lost connection."""

Params = Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class Answer:
    """A success: its status, and its JSON (`None` for 204)."""

    status: int
    body: Any


def encode(body: Mapping[str, object]) -> bytes:
    """A body as JSON; encoded once, so that a repeated POST has the same bytes. Raises `TypeError`."""
    return orjson.dumps(dict(body), default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise TypeError  # orjson names the type


def path_of(*parts: str | int) -> str:
    """A path of quoted parts. Raises `ValueError` for an id or name that no server has."""
    for part in parts:
        if part in ("", ".", ".."):
            raise ValueError(f"{part!r} is no id or name.")
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


class Connection:
    """A pool of connections to one server. `max_attempts`: how often one thing is tried in all."""

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float,
        connect_timeout_s: float,
        max_attempts: int,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if max_attempts < 1 or not timeout_s > 0 or not connect_timeout_s > 0:
            raise ValueError("Timeouts must be above 0 and `max_attempts` 1 or more.")
        self.address = address
        self.timeout_s = timeout_s
        self.connect_timeout_s = connect_timeout_s
        self.max_attempts = max_attempts
        self.pause: Pause = pause_s
        headers = {"User-Agent": "runwire-python", "Accept": "application/json"}
        if address.api_key is not None:
            headers["Authorization"] = f"Bearer {address.api_key}"
        encrypted = address.url.startswith("https:")
        self._http = httpx.AsyncClient(
            headers=headers,
            # a proxy of the environment is not for this machine, and might be given the key
            trust_env=not address.loopback,
            verify=encrypted or not address.loopback,  # loading the certificates takes most of a short program's start
            follow_redirects=False,  # the key goes to no other host
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            transport=transport,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        key: str | None = None,
        repeatable: bool = True,
        max_attempts: int | None = None,
        extra_s: float = 0.0,
    ) -> Answer:
        """One request, repeated until it has an answer.

        `key`: its `Idempotency-Key`. `repeatable`: false where a second one might act twice, so that it is only sent
        again if the first certainly was not taken. `extra_s`: what the server may take beside `timeout_s`.
        Raises `ProblemError`, `ConnectionFailed`, `UnexpectedAnswer`.
        """
        attempts = Attempts(max_attempts or self.max_attempts, self.pause)
        perhaps_done = False
        while True:
            failure: ClientError
            cause: Exception | None = None
            try:
                response = await self._http.send(self._request(method, path, params, body, key, extra_s=extra_s))
            except httpx.RequestError as error:
                cause = error
                failure = self.failed(error, attempts.failed + 1)
                untouched = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
                again = not isinstance(error, httpx.LocalProtocolError) and not _is_bad_certificate(error)
            else:
                if response.is_success:
                    return self._answer(response)
                failure = self.refused(response.status_code, response.headers, response.content)
                if method == "DELETE" and perhaps_done and isinstance(failure, NotFound):
                    return Answer(204, None)  # an earlier attempt did it
                untouched = response.status_code in UNTOUCHED
                again = response.status_code in AGAIN
            perhaps_done = perhaps_done or not untouched
            wait = None
            if again and (repeatable or untouched):
                wait = attempts.next_pause_s(failure.retry_after_s if isinstance(failure, ProblemError) else None)
            if wait is None:
                raise failure from cause
            await asyncio.sleep(wait)

    async def open(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        key: str | None = None,
        last_id: int = 0,
    ) -> httpx.Response:
        """One attempt at a stream, as far as its headers; the caller closes it. Raises `httpx.RequestError`."""
        request = self._request(method, path, params, body, key, extra_s=max(0.0, SILENCE_S - self.timeout_s))
        request.headers.update(
            {"Accept": "text/event-stream", "Cache-Control": "no-store", "Accept-Encoding": "identity"}
        )
        if last_id:
            request.headers["Last-Event-ID"] = str(last_id)
        try:
            async with asyncio.timeout(self.connect_timeout_s + self.timeout_s):
                return await self._http.send(request, stream=True)
        except TimeoutError:
            raise httpx.ReadTimeout("no answer", request=request) from None

    def _request(
        self,
        method: str,
        path: str,
        params: Params | None,
        body: bytes | None,
        key: str | None,
        *,
        extra_s: float,
    ) -> httpx.Request:
        headers: dict[str, str] = {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Idempotency-Key"] = key
        return self._http.build_request(
            method,
            self.address.url + path,
            params=params,
            content=body,
            headers=headers,
            timeout=httpx.Timeout(self.timeout_s + extra_s, connect=self.connect_timeout_s),
        )

    def _answer(self, response: httpx.Response) -> Answer:
        if response.status_code == 204:
            return Answer(204, None)
        try:
            return Answer(response.status_code, orjson.loads(response.content))
        except ValueError:
            raise self.unexpected(response) from None

    def failed(self, error: httpx.RequestError, attempts: int) -> ConnectionFailed:
        """What to tell about a request without an answer."""
        if isinstance(error, httpx.ConnectTimeout):
            why = f"it could not be connected to within {self.connect_timeout_s:g} s"
        elif isinstance(error, httpx.TimeoutException):
            why = "it took too long"
        elif isinstance(error, httpx.ConnectError):
            why = f"it cannot be reached ({self._said(error)})"
        else:
            why = f"the connection was lost ({self._said(error)})"
        tries = "" if attempts == 1 else f", {attempts} times"
        return ConnectionFailed(f"No answer from {self.address.url}: {why}{tries}.")

    def _said(self, error: Exception) -> str:
        text = str(error) or type(error).__name__
        return clean(text.replace(self.address.api_key, "***") if self.address.api_key else text, 200)

    def refused(self, status: int, headers: Mapping[str, str], body: bytes) -> ClientError:
        """The error for an answer that is not a success."""
        return refusal(status, headers, body, secret=self.address.api_key)

    def unexpected(self, response: httpx.Response, what: str = "") -> UnexpectedAnswer:
        """The error for a success that is not Runwire's. `what` it has instead."""
        kind = clean(response.headers.get("content-type", "no content type"), 100)
        return UnexpectedAnswer(
            f"{self.address.url} answered {response.status_code} with {what or kind}, and not as a Runwire server does; "
            "check the URL.",
            status=response.status_code,
        )

    def object_of(self, answer: Answer, what: str) -> JsonObject:
        """The answer's JSON object. Raises `UnexpectedAnswer`."""
        try:
            return object_of(answer.body, what)
        except NotOurs as error:
            raise self.not_ours(error, answer.status) from None

    def not_ours(self, error: NotOurs, status: int = 200) -> UnexpectedAnswer:
        """The error for JSON of another kind."""
        return UnexpectedAnswer(
            f"{self.address.url} answered with {error}, and not as a Runwire server does; check the URL.", status=status
        )


def _is_bad_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
