"""Server: the viewer's page and data over HTTP, for this machine only, by the standard library."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar, NamedTuple
from urllib.parse import unquote, urlsplit

from tsr_gym.agents.reports.view.pages import LICENCES, SCRIPTS, SERVED_POLICY, STYLES, asset, served_page
from tsr_gym.agents.reports.view.site import Site
from tsr_gym.errors import TsrGymError

LOOPBACK = "127.0.0.1"
_TYPES = {"css": "text/css", "js": "text/javascript", "txt": "text/plain", "html": "text/html"}


class Answer(NamedTuple):
    """The answer to a request: HTTP status, content type, content."""

    status: int
    content_type: str
    body: bytes


def answer(site: Site, path: str) -> Answer:
    """Return the answer to a request for a path such as ``/data/tree/beam/000004/00-01``."""
    address = unquote(path).removeprefix("/")
    if not address:
        return _text(served_page(), "html")
    if address.startswith("page/"):
        name = address.removeprefix("page/")
        # Only the page's own files are served: no address becomes a path.
        if name in (*STYLES, *SCRIPTS, LICENCES):
            return _text(asset(name), name.rpartition(".")[2])
        return _json(404, {"error": "there is no such file"})
    if not address.startswith("data/"):
        return _json(404, {"error": "there is no such page"})
    try:
        return _json(200, site.data(address.removeprefix("data/")))
    except LookupError as error:
        return _json(404, {"error": str(error)})
    except (TsrGymError, OSError) as error:
        return _json(422, {"error": str(error)})


def _text(text: str, suffix: str) -> Answer:
    return Answer(200, f"{_TYPES[suffix]}; charset=utf-8", text.encode())


def _json(status: int, data: dict[str, Any]) -> Answer:
    return Answer(status, "application/json", json.dumps(data).encode())


class _Visit(BaseHTTPRequestHandler):
    """A connection of a browser."""

    site: ClassVar[Site]
    protocol_version = "HTTP/1.1"
    # Seconds after which an idle connection gives its thread back.
    timeout = 60

    def do_GET(self) -> None:
        """Answer with the page, a file of it, or data; refuse requests under another host name."""
        # DNS rebinding: a foreign page can make its own host name resolve to this machine, and could then read answers.
        host = self.headers.get("Host", "").rpartition(":")[0]
        response = answer(self.site, urlsplit(self.path).path)
        if host not in (LOOPBACK, "localhost"):
            response = _json(403, {"error": f"wanted a request for {LOOPBACK}"})
        # A browser that leaves the page closes the connection without waiting for the answer.
        with suppress(ConnectionError):
            self._send(response)

    def _send(self, response: Answer) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Content-Security-Policy", SERVED_POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(response.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that was closed during a request; report all other errors."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def make_server(site: Site, port: int = 0) -> ThreadingHTTPServer:
    """Return a server that listens on loopback; ``serve_forever`` runs it.

    Args:
        site: The data that it shows.
        port: Port, 0 for any free port.

    Raises:
        OSError: The port is taken.
    """
    return _Server((LOOPBACK, port), type("Visit", (_Visit,), {"site": site}))


def address_of(server: ThreadingHTTPServer) -> str:
    """Return the URL of a server."""
    return f"http://{LOOPBACK}:{server.server_address[1]}/"


@contextmanager
def viewing(site: Site) -> Iterator[str]:
    """Serve a site from a thread, yield its URL, and stop at the end."""
    with make_server(site) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield address_of(server)
        finally:
            server.shutdown()
            thread.join()
