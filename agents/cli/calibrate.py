"""`tsr calibrate`: hold a score against exact values, and a search against its budget."""

import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import HERE, progress_bar, show_tables, with_json, write_json
from tsr_gym.optional import require


def main(args: list[str]) -> int:
    """Measure, print the tables, and write numbers and plot where wanted."""
    from tsr_gym.agents.probing.calibrate import CalibrationConfig as config_kind

    @dataclass(frozen=True, slots=True)
    class CalibrateArgs:
        """Say what a score is worth as the guide of a search, against the environment's exact values."""

        what: config_kind
        out: Path | None = None
        """Folder for calibration.json and calibration.png."""
        json: Path | None = None
        """File for what was measured as JSON; without a file it is printed."""

    # --scorer is an older name of the setting.
    args = [re.sub(r"^--scorer(?=$|=)", "--score", arg) for arg in with_json(args)]
    chosen = read_arguments(CalibrateArgs, args, prog="tsr calibrate", positional=True)
    if chosen.out is not None:
        require("matplotlib", "agents")
    if chosen.what.engine != "openai" and chosen.what.model != "random":
        require("torch", "agents")
        require("transformers", "agents")
    from tsr_gym.agents.probing.calibrate import calibrate_env as measure
    from tsr_gym.agents.probing.report import calibration_heading as heading
    from tsr_gym.agents.probing.report import calibration_tables as tables
    from tsr_gym.agents.probing.report import save_calibration as save

    with progress_bar() as watch:
        found = measure(chosen.what, watch=watch, note=lambda text: print(text, file=sys.stderr))
    written = [] if chosen.out is None else save(found, chosen.out)
    if chosen.json is not None:
        write_json({"what": heading(found), **asdict(found)}, chosen.json)
    if chosen.json == HERE:
        return 0
    print(heading(found))
    show_tables(tables(found))
    for text in found.unknown:
        print(f"not known: {text}")
    if written:
        print("written: " + ", ".join(map(str, written)))
    return 0
