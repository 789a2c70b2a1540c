"""Shared code of the web servers: an ASGI application on loopback, bounded requests, a graceful stop.

Requests are bounded in size and in the time of sending them, connections in number.

Importing this needs the extra `serve`.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import ClassVar

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

LOOPBACK = "127.0.0.1"
MAX_BODY = 4 * 2**20
# The status of a request whose client has disconnected, as nginx logs it; no client receives it.
CLIENT_LEFT = 499


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a server on its clients.

    Attributes:
        max_connections: Requests on connections beyond this number are answered 503.
        max_per_client: Connections of one address beyond this number are answered 503 and closed.
        read_timeout_s: Seconds in which a client must have sent a whole request, counted from the opening of the
            connection or from the request's first byte; else it is answered 408 and closed. An answer may take longer.
    """

    max_connections: int = 1024
    max_per_client: int = 512
    read_timeout_s: float = 30.0


class BodyLimit:
    """Middleware for a Starlette application: reading a longer request body than allowed answers 413.

    Args:
        app: The application.
        max_bytes: Longest body.
    """

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BODY) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count its body while it is read."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = HTTPException(413, f"wanted a request of at most {self._max_bytes} bytes; send it in parts")
        declared = dict(scope["headers"]).get(b"content-length", b"")
        # A body whose declared length is too long is not read at all.
        refused = declared.isdigit() and int(declared) > self._max_bytes
        read = 0

        async def counted() -> Message:
            nonlocal read
            if refused:
                raise refusal
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._max_bytes:
                raise refusal
            return message

        await self._app(scope, counted, send)


async def client_left(_: Request, error: Exception) -> Response:
    """Return an empty response: a `starlette.requests.ClientDisconnect` is not a failure of the server."""
    return Response(status_code=CLIENT_LEFT)


def serve(
    app: ASGIApp,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    limits: ConnectionLimits = ConnectionLimits(),
    grace_s: int = 10,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Run an application until the process receives a stop signal, then finish running requests.

    Args:
        app: The application.
        host: Address to listen at. Every client that reaches it can use the server, so it is loopback by default.
        port: Port, 0 for any free one.
        limits: Limits on clients.
        grace_s: Most seconds that running requests may take after the stop signal.
        ready: Called with the server's address once it accepts connections.

    Raises:
        OSError: The address cannot be listened at.
    """
    with _listening(host, port) as (listener, url):
        if ready is not None:
            ready(url)
        _server(app, limits, grace_s).run(sockets=[listener])


@contextmanager
def serving(
    app: ASGIApp,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    limits: ConnectionLimits = ConnectionLimits(),
    grace_s: int = 10,
) -> Iterator[str]:
    """Run an application in a thread, give its address, and stop it gracefully at the end."""
    with _listening(host, port) as (listener, url):
        server = _server(app, limits, grace_s)
        thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join()


def _server(app: ASGIApp, limits: ConnectionLimits, grace_s: int) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        http=type("Bounded", (_Bounded,), {"limits": limits, "num_open": Counter()}),
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=limits.max_connections,
        # Longer than clients keep idle connections, so that none is closed when its next request is on the way.
        timeout_keep_alive=20,
        timeout_graceful_shutdown=grace_s,
    )
    return uvicorn.Server(config)


class _Bounded(H11Protocol):
    """uvicorn's own protocol with a time limit on requests and a number of connections for each client.

    uvicorn bounds neither: its timeout begins after an answer, and its limit counts the connections of all clients.
    """

    limits: ClassVar[ConnectionLimits]
    num_open: ClassVar[Counter[str]]
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.num_open[self._host()] += 1
        if self.num_open[self._host()] > self.limits.max_per_client:
            self._refuse(b"503 Service Unavailable")
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        answered = self.cycle
        super().on_response_complete()
        # A pipelined request that arrived with the answered one triggers no further `data_received`.
        if self.cycle is not answered:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self.num_open[self._host()] -= 1
        # Entries of disconnected clients are deleted, so that the counter does not grow forever.
        if not self.num_open[self._host()]:
            del self.num_open[self._host()]
        super().connection_lost(exc)

    def _host(self) -> str:
        return self.client[0] if self.client else ""

    def _watch(self) -> None:
        """Start the time of a request that is not whole yet, unless it runs, and stop that of a whole one."""
        cycle = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            self._forget()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.limits.read_timeout_s, self._refuse, b"408 Request Timeout")

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: bytes) -> None:
        self._forget()
        cycle = self.cycle
        # An application may answer before it has read the whole request; then no second answer is written.
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % status)
        self.transport.close()


@contextmanager
def _listening(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    # Listening before the server runs, so that the address is known and connections wait instead of being refused.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=2048) as listener:
        # Connections inherit it; without it, an answer of two writes waits 40 ms for the client's acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        shown = f"[{host}]" if ":" in host else host
        yield listener, f"http://{shown}:{listener.getsockname()[1]}"
