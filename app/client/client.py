"""The client: a Runwire server, for programs in Python."""

from types import TracebackType

import httpx

from app.client.address import Address
from app.client.connection import Connection
from app.client.registries import Agents, Models, Tools
from app.client.runs import Runs
from app.client.store import Store
from app.client.threads import Threads
from app.client.tool_calls import ToolCalls
from app.client.values import JsonObject


class Client:
    """A Runwire server. Use it as `async with Client() as client`, or call `close` at the end.

    It repeats what is safe to repeat when the server is away for a moment, and takes up streams where they were cut.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        connect_timeout_s: float = 10.0,
        max_attempts: int = 6,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`url`: else `RUNWIRE_URL`, else this machine's port `RUNWIRE_PORT` or 8080. `api_key`: else `RUNWIRE_API_KEY`.

        `timeout_s`: how long one request may be silent. `max_attempts`: how often one thing is tried in all; for streams,
        how often in a row without a new event. `transport`: another way to send requests, for tests.

        Raises `ValueError`: the URL or the key cannot be used.
        """
        self._connection = Connection(
            Address.of(url, api_key),
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            max_attempts=max_attempts,
            transport=transport,
        )
        self.url = self._connection.address.url
        self.runs = Runs(self._connection)
        self.threads = Threads(self._connection)
        self.store = Store(self._connection)
        self.agents = Agents(self._connection)
        self.tools = Tools(self._connection)
        self.tool_calls = ToolCalls(self._connection)
        self.models = Models(self._connection)

    async def info(self) -> JsonObject:
        """The server's name, version and features."""
        return self._connection.object_of(await self._connection.request("GET", "/info"), "something else")

    async def close(self) -> None:
        """Close the connections. Streams still read end with an error."""
        await self._connection.close()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"
