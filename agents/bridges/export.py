"""Export: from saved trees to JSON lines that trainers and tools of others read.

A line is one record, with the file of its tree as ``tree``. Token ids are exactly those that were sampled:

- ``preferences`` (`sibling_pairs`): ``prompt_ids``, ``chosen_ids``, ``rejected_ids``, ``chosen_logprobs``,
  ``rejected_logprobs``, ``gap`` (how much more the chosen answer is worth), ``node`` (at which both were sampled).
- ``step-values`` (`tree_step_values`): ``task`` (seed of the tree), ``prompt_ids``, ``response_ids``, ``value``
  (backed-up return), ``trajectories`` (through the turn), ``turn`` (from 0).
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym.errors import ConfigError, InvalidTree
from tsr_gym.files import write_atomically
from tsr_gym.keywords import choose, parse_call
from tsr_gym.optional import require
from tsr_gym.tree import Tree

KINDS = {
    "preferences": "tsr_gym.agents.bridges.preferences:sibling_pairs",
    "step-values": "tsr_gym.agents.bridges.step_values:tree_step_values",
}


class Exported(NamedTuple):
    """What was written.

    Attributes:
        trees: Trees that were read.
        records: Lines that were written.
    """

    trees: int
    records: int


def export(sources: Sequence[Path], out: Path, *, kind: str = "preferences") -> Exported:
    """Write what trees say as JSON lines; an older file is replaced only when all is written.

    Args:
        sources: Folders of runs, folders of trees, or files of trees.
        out: The file.
        kind: One of `KINDS`, with keywords of its function as in ``"preferences(pairing='all')"``, or
            ``package.module:name`` of a function of yours from a tree to NamedTuples.

    Raises:
        ConfigError: There is no such kind or keyword, or there are no trees.
        InvalidTree: A tree is damaged, or its turns have no tokens, or nothing can be said of any of them.
        MissingExtra: The kind needs a package that is not installed.
        OSError: A file cannot be read or written.
    """
    records_of = _records_of(kind)
    files = [file for source in sources for file in tree_files(source)]
    if not files:
        raise ConfigError("wanted the folder of at least one run, or a file of a tree")
    lines = [
        json.dumps({"tree": str(file), **record._asdict()})
        for file in files
        for record in records_of(_with_tokens(file))
    ]
    if not lines:
        raise InvalidTree(f"the {len(files)} trees hold no {kind}: nothing was written")
    write_atomically(out, "".join(f"{line}\n" for line in lines).encode())
    return Exported(len(files), len(lines))


def tree_files(source: Path) -> Iterator[Path]:
    """Yield the files of trees that a path stands for: itself, or all in a folder, of a run those in its ``trees``.

    Raises:
        ConfigError: There is no such file, or the folder has none.
    """
    if not source.is_dir():
        if not source.is_file():
            raise ConfigError(f"{source}: wanted the folder of a run or a file of a tree, found nothing")
        yield source
        return
    folder = source / "trees" if (source / "config.json").is_file() else source
    found = sorted(folder.rglob("*.jsonl"))
    if not found:
        raise ConfigError(f"{folder}: found no trees; a run saves some at every checkpoint (--save-trees)")
    yield from found


def _records_of(kind: str) -> Callable[[Tree], Sequence[Any]]:
    call = parse_call(kind, what="kind of records")
    if call.name not in KINDS and ":" not in call.name:
        raise ConfigError(f"wanted kind of {', '.join(KINDS)} or package.module:name, got {kind!r}")
    if call.name == "step-values":
        require("torch", "agents")
    text = str(call._replace(name=KINDS.get(call.name, call.name)))
    return choose(text, home=__name__, what="kind of records")


def _with_tokens(file: Path) -> Tree:
    tree = Tree.load(file)
    if len(tree.nodes) > 1 and not any(node.candidate.token_ids for node in tree.nodes):
        raise InvalidTree(f"{file}: its turns have no token ids: wanted a tree that a language model grew")
    return tree
