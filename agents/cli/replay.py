"""`tsr replay`: replay saved trees in their environment, and compare every turn bit for bit."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import progress_bar, with_json, write_json
from tsr_gym.errors import ConfigError, shown
from tsr_gym.tree import Tree


@dataclass(frozen=True, slots=True)
class ReplayArgs:
    """Replay every turn of saved trees and report the first difference of each. Exit status 1: a tree differs."""

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Files of trees, folders of trees, or folders of runs."""
    env: str | None = None
    """Environment as package.module:Id, if a module must be imported first; the default is in the trees."""
    scores: bool = True
    """Compare scores, too; a rater is not run again."""
    json: Path | None = None
    """File for the results as JSON; without a file they are printed."""


def main(args: list[str]) -> int:
    """Replay all trees and return 1 if a tree differs."""
    options = read_arguments(ReplayArgs, with_json(args), prog="tsr replay")
    if not options.sources:
        raise ConfigError("wanted the folder of a run or a file of a tree, got none")
    from tsr_gym.agents.bridges.export import tree_files

    files = [file for source in options.sources for file in tree_files(source)]
    with progress_bar() as watch:
        replays = []
        for number, file in enumerate(files, start=1):
            replays.append(_replayed(file, options))
            watch("trees", number, len(files))
    if write_json(replays, options.json):
        for replayed in replays:
            print(f"{replayed['file']}: {_words(replayed)}")
    return 1 if any(replayed["difference"] for replayed in replays) else 0


def _replayed(file: Path, options: ReplayArgs) -> dict[str, Any]:
    from tsr_gym.wrappers.replay import replay, stack_of

    tree = Tree.load(file)
    result = replay(tree, stack_of(tree, options.env), scores=options.scores)
    difference = None if result.difference is None else result.difference._asdict()
    return {"file": str(file), "nodes": len(tree.nodes), "equal": result.nodes, "difference": difference}


def _words(replayed: dict[str, Any]) -> str:
    difference = replayed["difference"]
    if difference is None:
        return f"{replayed['nodes']} nodes, bit for bit"
    place = f"node {difference['node']} of {replayed['nodes']} differs in its {difference['field']}: "
    hint = "; if a rater gave the scores, add --no-scores" if difference["field"] == "score" else ""
    return f"{place}saved {shown(difference['saved'])}, replayed {shown(difference['found'])}{hint}"
