"""A plugin for test servers: the deadlines of a connection, short enough to wait for."""

from app.api import body
from app.cli import protocol, serve
from tests.e2e.plugin_tools import echo, hang, wait_for

tools = [echo, hang, wait_for]

protocol.HEAD_S = 0.4
protocol.BODY_S = 0.8
protocol.LINGER_S = 0.3
body.BODY_S = 0.5
serve.KEEP_ALIVE_S = 1  # pyright: ignore[reportPrivateImportUsage]
