"""Read a tree for the viewer: as far as its file is whole, with snapshots left as they lie in the file."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tsr_gym.errors import InvalidTree, shown
from tsr_gym.node import node_from_json
from tsr_gym.tree import FORMAT, SCORES_OF, VERSION, Tree

# What reading a damaged line may raise.
DAMAGE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class SeenTree:
    """A tree as far as its file is whole.

    Attributes:
        tree: Its nodes, without their snapshots.
        snapshots: Of each node, in base64 and unread; None where the file holds none.
        note: What is wrong with the file; empty for a whole one.
    """

    tree: Tree
    snapshots: tuple[str | None, ...]
    note: str


def read_tree(path: Path) -> SeenTree:
    """Return the tree in a file, up to the first line that is not whole.

    Raises:
        InvalidTree: Not even the header and the first node can be read.
        OSError: The file cannot be read.
    """
    lines = path.read_bytes().splitlines()
    header = tree_header(lines[0] if lines else b"", path)
    tree = Tree(seed=header["seed"], score_of=header["score_of"], about=header["about"])
    played, snapshots, note = set(_ints(header.get("played"))), [], ""
    for number, line in enumerate(lines[1:], start=2):
        try:
            data = json.loads(line)
            snapshot = data.pop("snapshot")
            tree.add(node_from_json({**data, "snapshot": None}), played=number - 2 in played)
        except DAMAGE:
            note = f"line {number} is not whole"
            break
        snapshots.append(snapshot if isinstance(snapshot, str) else None)
    if not tree.nodes:
        raise InvalidTree(f"{path}: wanted a tree with at least its first node, got none: the file is cut short")
    wanted = header.get("nodes")
    if note or wanted != len(tree.nodes):
        note = f"{note or 'the file is cut short'}: {len(tree.nodes):,} nodes shown of {shown(wanted)}"
    tree.choose([index for index in _ints(header.get("chosen")) if 0 <= index < len(tree.nodes)])
    return SeenTree(tree, tuple(snapshots), note)


def tree_header(line: bytes, path: Path) -> dict[str, Any]:
    """Return the first line of a tree's file.

    Raises:
        InvalidTree: It is not that of a tree.
    """
    try:
        header: dict[str, Any] = json.loads(line)
        known = header["format"] == FORMAT and header["version"] == VERSION and header["score_of"] in SCORES_OF
        if known and type(header["seed"]) is int and isinstance(header["about"], dict):
            return header
    except DAMAGE:
        pass
    raise InvalidTree(f"{path}: wanted a {FORMAT!r} of version {VERSION}, got {shown(line)}")


def _ints(values: object) -> Iterable[int]:
    return [value for value in values if type(value) is int] if isinstance(values, list) else []
