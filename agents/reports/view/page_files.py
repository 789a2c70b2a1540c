"""Page files: the page of the viewer, with its styles and scripts beside it or all in one."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

STYLES = ("libraries/uplot.css", "view.css")
SCRIPTS = (
    *("libraries/uplot.js", "libraries/d3-hierarchy.js"),
    *("base.js", "observation.js", "charts.js", "run.js", "list.js", "tree.js", "node.js", "main.js"),
)
LICENCES = "libraries/LICENSES.txt"
# What a page may load: nothing but what it was served with, or what it holds.
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
    """Return JSON in which nothing can end the script element that holds it, equal in meaning."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _page(styles: Sequence[str], scripts: Sequence[str], policy: str) -> str:
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    text = asset("index.html")
    return text.replace("<!-- head -->", "\n".join([head, *styles])).replace("<!-- scripts -->", "\n".join(scripts))
