"""`tsr export`: write what saved trees say as JSON lines for trainers of others."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from tsr_gym.cli.arguments import read_arguments
from tsr_gym.optional import load


@dataclass(frozen=True, slots=True)
class ExportArgs:
    """Write preferences among candidates, or values of turns, from the trees of runs as JSON lines."""

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs, folders of trees, or files of trees."""
    out: Path
    """File for the lines; an older one is replaced when all is written."""
    kind: str = "preferences"
    """preferences (pairs of answers to one prompt, the better one first) or step-values (what every turn led to), with
    settings as in preferences(worth='mean_return', pairing='all') and step-values(backup='leaf_mean'), or
    package.module:name of a function of yours."""


def main(args: list[str]) -> int:
    """Read the trees and write the lines."""
    chosen = read_arguments(ExportArgs, args, prog="tsr export")
    export: Any = load("tsr_gym.agents.bridges.export:export")
    written = export(chosen.sources, chosen.out, kind=chosen.kind)
    print(f"{chosen.out}: {written.records:,} {chosen.kind} from {written.trees:,} trees")
    return 0
