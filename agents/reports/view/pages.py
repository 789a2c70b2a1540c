"""Pages: the viewer's page with separate styles and scripts, and the export of runs and trees as one HTML file."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym.agents.reports.view.site import CHUNK, Site
from tsr_gym.errors import TsrGymError
from tsr_gym.files import write_atomically

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


Watch = Callable[[int, int], None]
# Texts that many nodes share: they are written once and referred to by number.
_SHARED = ("picture", "prompt", "observation", "page")


class ExportedPage(NamedTuple):
    """The result of an export: trees in the file, trees left out, and its size in bytes."""

    trees: int
    left_out: int
    size: int


def export_page(
    paths: Sequence[Path], out: Path, *, most_trees: int = 100, watch: Watch = lambda done, total: None
) -> ExportedPage:
    """Write runs and trees as one HTML file; an older file is replaced when all is written.

    Args:
        paths: As `find_sources` takes them.
        out: The file.
        most_trees: Most trees, of which the newest are taken; their pictures, prompts and tokens need the most space.
        watch: Called with the number of trees that are written and the total.

    Raises:
        ConfigError: The paths hold neither runs nor trees.
        OSError: A file cannot be read or written.
    """
    site = Site(paths)
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
        watch(number, len(kept))
    text = single_page({address: json.dumps(value) for address, value in data.items()})
    write_atomically(out, text.encode())
    return ExportedPage(len(kept), left, len(text.encode()))


def _tree(site: Site, name: str) -> dict[str, Any]:
    """Return the data of a tree by address; of an unreadable tree, the error."""
    try:
        shape = site.data(f"tree/{name}")
    except TsrGymError as error:
        return {f"tree/{name}": {"error": str(error)}}
    nodes = [site.data(f"node/{index}/{name}") for index in range(len(shape["parent"]))]
    shared: dict[str, int] = {}
    for node in nodes:
        node |= {key: shared.setdefault(node[key], len(shared)) for key in _SHARED if isinstance(node[key], str)}
    return {f"tree/{name}": shape, f"nodes/{name}": {"shared": list(shared), "nodes": nodes}}
