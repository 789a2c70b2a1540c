"""`tsr export`: write the contents of saved trees as JSON lines or Parquet for other trainers."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import progress_bar


@dataclass(frozen=True, slots=True)
class ExportArgs:
    """Write preferences, values, trajectories, nodes or chats from the trees of runs, as JSON lines or Parquet."""

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs, folders of trees, or files of trees."""
    out: Path
    """File for the records: Parquet where it ends in .parquet, else JSON lines; an older file is replaced when the
    new one is complete."""
    kind: str = "preferences"
    """preferences (pairs of answers to one prompt, the better one first), step-values (the mean return after a turn),
    trajectories (training rows of tokens, labels and log-probabilities), nodes (whole trees) or chat (messages), with
    settings as in preferences(worth='mean_return', pairing='all'), step-values(backup='leaf_mean') and
    trajectories(take='leaves'), or package.module:name of a function of your own."""


def main(args: list[str]) -> int:
    """Read the trees and write the records."""
    options = read_arguments(ExportArgs, args, prog="tsr export")
    from tsr_gym.agents.bridges.export import export

    with progress_bar() as watch:
        written = export(options.sources, options.out, kind=options.kind, watch=partial(watch, "trees"))
    print(f"{options.out}: {written.records:,} {options.kind} from {written.trees:,} trees")
    return 0
