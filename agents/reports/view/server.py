"""The viewer's pages: over HTTP, for this machine only, by the standard library; and as one HTML file."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, NamedTuple
from urllib.parse import unquote, urlsplit

from tsr_gym.agents.reports.view.site import CHUNK, Site
from tsr_gym.errors import TsrGymError
from tsr_gym.files import write_atomically
from tsr_gym.records import to_json
from tsr_gym.tree import Meter

STYLES = ("libraries/uplot.css", "view.css")
SCRIPTS = (
    *("libraries/uplot.js", "libraries/d3-hierarchy.js"),
    *("base.js", "observation.js", "charts.js", "run.js", "list.js", "tree.js", "node.js", "main.js"),
)
LICENCES = "libraries/LICENSES.txt"
# A page may load only its own files from the server, or nothing at all as a single file.
SERVED_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'"
)
SINGLE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
)


@cache
def asset(name: str) -> str:
    """Return the text of a file of the page; one of `STYLES`, `SCRIPTS` or `LICENCES`."""
    return files(__package__).joinpath("page", *name.split("/")).read_text(encoding="utf-8")


def served_page() -> str:
    """Return the page that loads its styles and scripts from ``page/``."""
    styles = [f'<link rel="stylesheet" href="page/{name}">' for name in STYLES]
    return _page(styles, [f'<script src="page/{name}"></script>' for name in SCRIPTS], SERVED_POLICY)


def single_page(data: Mapping[str, str]) -> str:
    """Return the page as one file that loads nothing.

    Args:
        data: JSON by address, as the server would answer.
    """
    styles = [f"<style>\n{asset(name)}\n</style>" for name in STYLES]
    parts = [
        f'<script type="application/json" data-address="{number}">{harmless(text)}</script>'
        for number, text in enumerate(data.values())
    ]
    index = harmless(json.dumps(list(data)))
    parts.append(f'<script type="application/json" id="addresses">{index}</script>')
    parts.append(f'<script type="text/plain" id="licences">\n{asset(LICENCES)}</script>')
    return _page(styles, [*parts, *[f"<script>\n{asset(name)}\n</script>" for name in SCRIPTS]], SINGLE_POLICY)


def harmless(text: str) -> str:
    """Return the same JSON with escapes, so that no text in it can end the script element that holds it."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _page(styles: Sequence[str], scripts: Sequence[str], policy: str) -> str:
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    text = asset("index.html")
    return text.replace("<!-- head -->", "\n".join([head, *styles])).replace("<!-- scripts -->", "\n".join(scripts))


# Texts that many nodes share: they are written once and referred to by number.
_SHARED = ("picture", "prompt", "observation", "page")


class ExportedPage(NamedTuple):
    """The result of an export: trees in the file, trees left out, and its size in bytes."""

    trees: int
    left_out: int
    size: int


def export_page(
    paths: Sequence[Path],
    out: Path,
    *,
    most_trees: int = 100,
    modules: Sequence[str] = (),
    watch: Meter = lambda stage, done, total: None,
) -> ExportedPage:
    """Write runs and trees as one HTML file; an older file is replaced when all is written.

    Args:
        paths: As `find_sources` takes them.
        out: The file.
        most_trees: Most trees, of which the newest are taken; their pictures, prompts and tokens need the most space.
        modules: See `Site`.
        watch: See `Meter`; counts the trees that are written.

    Raises:
        ConfigError: The paths hold neither runs nor trees.
        OSError: A file cannot be read or written.
    """
    site = Site(paths, modules)
    data: dict[str, Any] = {"overview": site.data("overview")}
    names = list(site.sources.trees)
    kept, left = names[max(0, len(names) - most_trees) :], max(0, len(names) - most_trees)
    data["overview"] |= {"trees": kept, "left_out": left, "chunk": max(1, len(kept))}
    summaries: dict[str, Any] = {}
    for chunk in range(-(-len(names) // CHUNK)):
        summaries |= site.data(f"summaries/{chunk}")
    data["summaries/0"] = {name: summaries[name] for name in kept}
    for number, name in enumerate(kept, start=1):
        data |= _tree(site, name)
        watch("trees", number, len(kept))
    text = single_page({address: to_json(value) for address, value in data.items()})
    write_atomically(out, text.encode())
    return ExportedPage(len(kept), left, len(text.encode()))


def _tree(site: Site, name: str) -> dict[str, Any]:
    """Return the data of a tree by address; of an unreadable tree, the error."""
    try:
        shape = site.data(f"tree/{name}")
    except (TsrGymError, OSError) as error:
        return {f"tree/{name}": {"error": str(error)}}
    nodes = [site.data(f"node/{index}/{name}") for index in range(len(shape["parent"]))]
    shared: dict[str, int] = {}
    for node in nodes:
        node |= {key: shared.setdefault(node[key], len(shared)) for key in _SHARED if isinstance(node[key], str)}
    return {f"tree/{name}": shape, f"nodes/{name}": {"shared": list(shared), "nodes": nodes}}


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
    return Answer(status, "application/json", to_json(data).encode())


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
