"""`tsr probe`: what a success costs by plain play and by searches, before anything is learned."""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import HERE, progress_bar, show_tables, with_json, write_json
from tsr_gym.optional import load, require


def main(args: list[str]) -> int:
    """Measure, print the table and the advice, and write rows and plot where wanted."""
    from tsr_gym.agents.probing.probe import ProbeConfig as config_kind

    @dataclass(frozen=True)
    class ProbeArgs:
        """Say before any learning what a success costs by plain play and by searches, on training instances."""

        what: config_kind
        json: Path | None = None
        """File for the rows as JSON; without a file they are printed."""
        out: Path | None = None
        """Folder for probe.json, which keeps what was measured, and probe.png; a probe that was stopped goes on in
        it."""

    chosen = read_arguments(ProbeArgs, _gathered(with_json(args)), prog="tsr probe", positional=True)
    if chosen.out is not None:
        require("matplotlib", "agents")
    if chosen.what.model.model != "random":
        require("torch", "agents")
        require("transformers", "agents")
    from tsr_gym.agents.probing.probe import probe_env as measure

    report: dict[str, Any] = {
        name: load(f"tsr_gym.agents.probing.report:{name}")
        for name in ("probe_heading", "probe_table", "advice", "probe_rows", "draw_probe")
    }
    with progress_bar() as watch:
        found = measure(chosen.what, out=chosen.out, watch=watch, note=lambda text: print(text, file=sys.stderr))
    if chosen.out is not None:
        report["draw_probe"](found, chosen.out / "probe.png")
    if chosen.json is not None:
        write_json(report["probe_rows"](found), chosen.json)
    if chosen.json == HERE:
        return 0
    print(report["probe_heading"](found))
    show_tables([report["probe_table"](found)])
    print(report["advice"](found))
    if chosen.json is not None:
        print(f"rows: {chosen.json}")
    if chosen.out is not None:
        print(f"kept: {chosen.out / 'probe.json'}, plot: {chosen.out / 'probe.png'}")
    return 0


def _gathered(args: Sequence[str]) -> list[str]:
    """Return a command line in which flags that may be given several times stand once, with all their values."""
    parser = ArgumentParser(prog="tsr probe", add_help=False, allow_abbrev=False)
    for name in ("search", "score"):
        parser.add_argument(f"--{name}", nargs="+", action="extend", default=[])
    found, rest = parser.parse_known_args(args)
    for name, values in (("search", found.search), ("score", found.score)):
        rest += [f"--{name}", *values] if values else []
    return rest
