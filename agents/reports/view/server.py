"""Server: the viewer's page and its data over HTTP, for this machine alone, by the standard library."""

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
_KINDS = {"css": "text/css", "js": "text/javascript", "txt": "text/plain", "html": "text/html"}


class Answer(NamedTuple):
    """What a request is answered: HTTP status, kind of content, content."""

    status: int
    kind: str
    body: bytes


def answer(site: Site, path: str) -> Answer:
    """Return the answer to a request for a path such as ``/data/tree/beam/000004/00-01``."""
    address = unquote(path).removeprefix("/")
    if not address:
        return _text(served_page(), "html")
    if address.startswith("page/"):
        name = address.removeprefix("page/")
        known = name in (*STYLES, *SCRIPTS, LICENCES)
        return _text(asset(name), name.rpartition(".")[2]) if known else _json(404, {"error": "there is no such file"})
    if not address.startswith("data/"):
        return _json(404, {"error": "there is no such page"})
    try:
        return _json(200, site.data(address.removeprefix("data/")))
    except LookupError as error:
        return _json(404, {"error": str(error)})
    except (TsrGymError, OSError) as error:
        return _json(422, {"error": str(error)})


def _text(text: str, kind: str) -> Answer:
    return Answer(200, f"{_KINDS[kind]}; charset=utf-8", text.encode())


def _json(status: int, data: dict[str, Any]) -> Answer:
    return Answer(status, "application/json", json.dumps(data).encode())


class _Visit(BaseHTTPRequestHandler):
    """One connection of a browser."""

    site: ClassVar[Site]
    protocol_version = "HTTP/1.1"
    # Seconds after which an idle connection gives its thread back.
    timeout = 60

    def do_GET(self) -> None:
        """Answer a page, a file of it, or data; only to whoever asks for this very machine."""
        # A page of somebody else may have its own name lead here: it must not read the answer.
        host = self.headers.get("Host", "").rpartition(":")[0]
        found = answer(self.site, urlsplit(self.path).path)
        if host not in (LOOPBACK, "localhost"):
            found = _json(403, {"error": f"wanted a request for {LOOPBACK}"})
        # A browser that goes on to another page does not wait for the answer.
        with suppress(ConnectionError):
            self._send(found)

    def _send(self, found: Answer) -> None:
        self.send_response(found.status)
        self.send_header("Content-Type", found.kind)
        self.send_header("Content-Length", str(len(found.body)))
        self.send_header("Content-Security-Policy", SERVED_POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(found.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that was closed in the middle of a request; show everything else."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def make_server(site: Site, port: int = 0) -> ThreadingHTTPServer:
    """Return a server that listens on loopback; ``serve_forever`` runs it.

    Args:
        site: What it shows.
        port: Port, 0 for any free one.

    Raises:
        OSError: The port is taken.
    """
    return _Server((LOOPBACK, port), type("Visit", (_Visit,), {"site": site}))


def address_of(server: ThreadingHTTPServer) -> str:
    """Return where a server is found."""
    return f"http://{LOOPBACK}:{server.server_address[1]}/"


@contextmanager
def viewing(site: Site) -> Iterator[str]:
    """Serve a site from a thread, give its address, and stop at the end."""
    with make_server(site) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield address_of(server)
        finally:
            server.shutdown()
            thread.join()
