"""`tsr export`: write what saved trees say as JSON lines or Parquet for trainers of others."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import progress_bar


@dataclass(frozen=True, slots=True)
class ExportArgs:
    """Write what the trees of runs hold, as JSON lines or Parquet: preferences, values, trajectories, nodes, chats."""

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs, folders of trees, or files of trees."""
    out: Path
    """File for the records: Parquet where it ends in .parquet, else JSON lines; an older one is replaced when all is
    written."""
    kind: str = "preferences"
    """preferences (pairs of answers to one prompt, the better one first), step-values (what every turn led to),
    trajectories (training rows of tokens, mask and log-probabilities), nodes (whole trees) or chat (messages), with
    settings as in preferences(worth='mean_return', pairing='all'), step-values(backup='leaf_mean') and
    trajectories(take='leaves'), or package.module:name of a function of yours."""


def main(args: list[str]) -> int:
    """Read the trees and write the records."""
    chosen = read_arguments(ExportArgs, args, prog="tsr export")
    from tsr_gym.agents.bridges.export import export

    with progress_bar() as watch:
        written = export(chosen.sources, chosen.out, kind=chosen.kind, watch=partial(watch, "trees"))
    print(f"{chosen.out}: {written.records:,} {chosen.kind} from {written.trees:,} trees")
    return 0
