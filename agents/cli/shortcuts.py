"""Shortcuts: numbers of the strategy's and the filter's calls as flags of their own, folded into the calls."""

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from tsr_gym.optional import load

_Int = Annotated[int | None, tyro.conf.arg(metavar="INT")]
_Share = Annotated[float | None, tyro.conf.arg(metavar="FLOAT")]


@dataclass(frozen=True, slots=True)
class Shortcuts:
    """Short for several settings, or for numbers in the calls of search and filter: beam(width=2, branching=4)."""

    n: _Int = None
    """Best-of-N: episodes per search (paper: 32)."""
    width: _Int = None
    """Beam: paths that are kept, the paper's B (paper: 2)."""
    branching: _Int = None
    """Candidates per turn, the paper's M (paper: 4)."""
    depth: _Int = None
    """Lookahead: further turns per candidate, the paper's D (paper: 2)."""
    recipe: Annotated[str | None, tyro.conf.arg(metavar="{tsr+,levin,paper}")] = None
    """Of training: tsr+, plain play first and a guided search where it fails; levin, the same with a search that needs
    no guide, for moves that are certain (both this project's own, see docs/does_search_pay.md); paper, beam search with
    the paper's proxy and algorithm for the world. Whatever is given beside it wins."""
    keep: _Share = None
    """Filter: share of the groups that are kept (paper: 0.25); with top_p, of the variation."""


def fold_shortcuts(args: Sequence[str]) -> list[str]:
    """Return a command line whose shortcuts stand in the calls that they are short for.

    Raises:
        ConfigError: A number stands in a call as well, or what is called does not know it.
    """
    parser = ArgumentParser(prog="tsr", add_help=False, allow_abbrev=False)
    for name, kind in (("n", int), ("width", int), ("branching", int), ("depth", int), ("keep", float)):
        parser.add_argument(f"--{name}", type=kind)
    for name in ("search", "filter"):
        parser.add_argument(f"--{name}")
    found, rest = parser.parse_known_args(args)
    numbers = {"n": found.n, "width": found.width, "branching": found.branching, "depth": found.depth}
    if found.search is not None or any(number is not None for number in numbers.values()):
        fold: Any = load("tsr_gym.keywords:fold")
        strategies: Any = load("tsr_gym.agents.strategies:STRATEGIES")
        rest += ["--search", fold(found.search or "naive", numbers, home=strategies, what="strategy")]
    if found.filter is not None or found.keep is not None:
        fold_keep: Any = load("tsr_gym.agents.lessons.groups:fold_keep")
        rest += ["--filter", fold_keep(found.filter or "uncertainty", found.keep)]
    return rest
