"""`tsr probe`: the cost of a success by plain play and by searches, before any training."""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import progress_bar, show_tables, with_json, write_json
from tsr_gym.optional import require


def main(args: list[str]) -> int:
    """Measure, print the table and the advice, and write the rows and the plot to the given files."""
    from tsr_gym.agents.probing.probe import ProbeConfig

    @dataclass(frozen=True)
    class ProbeArgs:
        """Measure what a success costs by plain play and by searches on training instances, before any training."""

        what: ProbeConfig
        json: Path | None = None
        """File for the rows as JSON; without a file they are printed."""
        out: Path | None = None
        """Folder for probe.json, which keeps the measurements, and probe.png; a probe that was stopped continues
        from it."""

    options = read_arguments(ProbeArgs, _gathered(with_json(args)), prog="tsr probe", positional=True)
    if options.out is not None:
        require("matplotlib", "agents")
    if options.what.model.model != "random":
        require("torch", "agents")
        require("transformers", "agents")
    from tsr_gym.agents.probing.probe import probe_env
    from tsr_gym.agents.probing.report import advice, draw_probe, probe_heading, probe_rows, probe_table

    with progress_bar() as watch:
        result = probe_env(options.what, out=options.out, watch=watch, note=lambda text: print(text, file=sys.stderr))
    if options.out is not None:
        draw_probe(result, options.out / "probe.png")
    if not write_json(probe_rows(result), options.json):
        return 0
    print(probe_heading(result))
    show_tables([probe_table(result)])
    print(advice(result))
    if options.json is not None:
        print(f"rows: {options.json}")
    if options.out is not None:
        print(f"kept: {options.out / 'probe.json'}, plot: {options.out / 'probe.png'}")
    return 0


def _gathered(args: Sequence[str]) -> list[str]:
    """Return a command line in which each repeated flag occurs once, with all its values."""
    parser = ArgumentParser(prog="tsr probe", add_help=False, allow_abbrev=False)
    for name in ("search", "score"):
        parser.add_argument(f"--{name}", nargs="+", action="extend", default=[])
    parsed, rest = parser.parse_known_args(args)
    for name, values in (("search", parsed.search), ("score", parsed.score)):
        rest += [f"--{name}", *values] if values else []
    return rest
