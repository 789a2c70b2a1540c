"""`tsr calibrate`: compare a score with exact values, and a search with its budget."""

import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import progress_bar, show_tables, with_json, write_json
from tsr_gym.optional import require


def main(args: list[str]) -> int:
    """Measure, print the tables, and write the numbers and the plot to the given files."""
    from tsr_gym.agents.probing.calibrate import CalibrationConfig

    @dataclass(frozen=True, slots=True)
    class CalibrateArgs:
        """Measure how well a score guides a search, compared with the environment's exact values."""

        what: CalibrationConfig
        out: Path | None = None
        """Folder for calibration.json and calibration.png."""
        json: Path | None = None
        """File for the measurements as JSON; without a file they are printed."""

    # --scorer is an older name of the setting.
    args = [re.sub(r"^--scorer(?=$|=)", "--score", arg) for arg in with_json(args)]
    options = read_arguments(CalibrateArgs, args, prog="tsr calibrate", positional=True)
    if options.out is not None:
        require("matplotlib", "agents")
    if options.what.engine != "openai" and options.what.model != "random":
        require("torch", "agents")
        require("transformers", "agents")
    from tsr_gym.agents.probing.calibrate import calibrate_env
    from tsr_gym.agents.probing.report import calibration_heading, calibration_tables, save_calibration

    with progress_bar() as watch:
        result = calibrate_env(options.what, watch=watch, note=lambda text: print(text, file=sys.stderr))
    written = [] if options.out is None else save_calibration(result, options.out)
    if not write_json({"what": calibration_heading(result), **asdict(result)}, options.json):
        return 0
    print(calibration_heading(result))
    show_tables(calibration_tables(result))
    for text in result.unknown:
        print(f"not known: {text}")
    if written:
        print("written: " + ", ".join(map(str, written)))
    return 0
