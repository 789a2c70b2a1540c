"""Export a page: runs and trees in one HTML file that loads nothing, to be kept or mailed."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym.agents.reports.view.page_files import single_page
from tsr_gym.agents.reports.view.site import CHUNK, Site
from tsr_gym.errors import TsrGymError
from tsr_gym.files import write_atomically

Watch = Callable[[int, int], None]
# Texts of a node that many nodes have in common: written once, and given by number.
_SHARED = ("picture", "prompt", "observation", "page")


class ExportedPage(NamedTuple):
    """What was written: trees in the file, trees left out, and its size in bytes."""

    trees: int
    left_out: int
    size: int


def export_page(
    paths: Sequence[Path], out: Path, *, most_trees: int = 100, watch: Watch = lambda done, total: None
) -> ExportedPage:
    """Write runs and trees as one HTML file; an older one is replaced when all is written.

    Args:
        paths: As `find_sources` takes them.
        out: The file.
        most_trees: Trees at most, the newest ones; with their pictures, prompts and tokens they take the room.
        watch: Called with the number of trees that are drawn, and of all.

    Raises:
        ConfigError: There is nothing to see.
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
    """Return what there is to see of a tree by address; of one that is damaged from its beginning, why."""
    try:
        shape = site.data(f"tree/{name}")
    except TsrGymError as error:
        return {f"tree/{name}": {"error": str(error)}}
    nodes = [site.data(f"node/{index}/{name}") for index in range(len(shape["parent"]))]
    shared: dict[str, int] = {}
    for node in nodes:
        node |= {key: shared.setdefault(node[key], len(shared)) for key in _SHARED if isinstance(node[key], str)}
    return {f"tree/{name}": shape, f"nodes/{name}": {"shared": list(shared), "nodes": nodes}}
