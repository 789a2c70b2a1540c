"""What the project's web servers share: an ASGI application on loopback, requests of bounded size, a graceful stop.

Importing this needs the extra `serve`.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import uvicorn
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
MAX_BODY = 4 * 2**20


class BodyLimit:
    """Middleware for a Starlette application: who reads a longer request body than allowed answers 413.

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
        # A body that says it is too long is not read at all.
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


def serve(
    app: ASGIApp,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    max_connections: int = 1024,
    grace_s: int = 10,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Run an application until the process is asked to stop, then finish what has begun.

    Args:
        app: The application.
        host: Address to listen at; whoever can reach it can use the server, so it is loopback by default.
        port: Port, 0 for any free one.
        max_connections: Requests beyond so many connections are answered 503.
        grace_s: Most seconds for requests that have begun when the stop is asked for.
        ready: Called with the server's address once it accepts connections.

    Raises:
        OSError: The address cannot be listened at.
    """
    with _listening(host, port) as (listener, url):
        if ready is not None:
            ready(url)
        _server(app, max_connections, grace_s).run(sockets=[listener])


@contextmanager
def serving(app: ASGIApp, *, host: str = LOOPBACK, port: int = 0, grace_s: int = 10) -> Iterator[str]:
    """Run an application in a thread, give its address, and stop it gracefully at the end."""
    with _listening(host, port) as (listener, url):
        server = _server(app, 1024, grace_s)
        thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join()


def _server(app: ASGIApp, max_connections: int, grace_s: int) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=max_connections,
        timeout_graceful_shutdown=grace_s,
    )
    return uvicorn.Server(config)


@contextmanager
def _listening(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    # Listening before the server runs, so that the address is known and connections wait instead of being refused.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=2048) as listener:
        # Connections inherit it; without it, an answer of two writes waits 40 ms for the client's acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        shown = f"[{host}]" if ":" in host else host
        yield listener, f"http://{shown}:{listener.getsockname()[1]}"
