"""`tsr replay`: hold saved trees and trajectories against their environment, turn by turn and bit for bit."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import HERE, progress_bar, with_json, write_json
from tsr_gym.errors import ConfigError, shown
from tsr_gym.tree import Tree


@dataclass(frozen=True, slots=True)
class ReplayArgs:
    """Play every turn of saved trees again and say where one first comes out differently. Status 1: one does."""

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Files of trees, folders of trees, or folders of runs."""
    env: str | None = None
    """The environment, where a module must be imported first: package.module:Id; else the trees name it."""
    scores: bool = True
    """Compare scores, too; a rater that gave them is not asked again."""
    json: Path | None = None
    """File for what was found as JSON; without a file it is printed."""


def main(args: list[str]) -> int:
    """Replay all trees and return 1 where one differs."""
    chosen = read_arguments(ReplayArgs, with_json(args), prog="tsr replay")
    if not chosen.sources:
        raise ConfigError("wanted the folder of a run or a file of a tree, got none")
    from tsr_gym.agents.bridges.export import tree_files

    files = [file for source in chosen.sources for file in tree_files(source)]
    with progress_bar() as watch:
        found = []
        for number, file in enumerate(files, start=1):
            found.append(_replayed(file, chosen))
            watch("trees", number, len(files))
    if chosen.json is not None:
        write_json(found, chosen.json)
    if chosen.json != HERE:
        for one in found:
            print(f"{one['file']}: {_words(one)}")
    return 1 if any(one["difference"] for one in found) else 0


def _replayed(file: Path, chosen: ReplayArgs) -> dict[str, Any]:
    from tsr_gym.wrappers.replay import replay, stack_of

    tree = Tree.load(file)
    result = replay(tree, stack_of(tree, chosen.env), scores=chosen.scores)
    difference = None if result.difference is None else result.difference._asdict()
    return {"file": str(file), "nodes": len(tree.nodes), "equal": result.nodes, "difference": difference}


def _words(one: dict[str, Any]) -> str:
    difference = one["difference"]
    if difference is None:
        return f"{one['nodes']} nodes, bit for bit"
    said = f"node {difference['node']} of {one['nodes']} differs in its {difference['field']}: "
    hint = "; where a rater gave the scores, add --no-scores" if difference["field"] == "score" else ""
    return f"{said}saved {shown(difference['saved'])}, replayed {shown(difference['found'])}{hint}"
