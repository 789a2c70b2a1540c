"""Speed of search: one process, one thread, both sides in turns, outputs compared before anything is timed.

Text environments in the full stack and CartPole against resetting and replaying; batches of grid worlds in arrays
against the same in arrays; what the driver costs per node as trees become many and deep; PUCT beside mctx, which
`pip install 'tsr-gym[envs]' mctx` brings. What is not installed is said and left out.
Sections that are measured by themselves take the place of theirs in the result and say when.
Run: python -m benchmarks.search_speed [--quick] [text] [arrays] [growth] [puct]
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.measure import RESULTS, laid_out, stamped, write_result
from benchmarks.search_arrays import array_rows
from benchmarks.search_growth import growth_rows
from benchmarks.search_puct import puct_rows
from benchmarks.search_text import text_rows

SECTIONS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "text": text_rows,
    "arrays": array_rows,
    "growth": growth_rows,
    "puct": puct_rows,
}
AIMS = {"text": "Sokoban text >= 15,000 nodes/s", "arrays": ">= 2 million nodes/s", "growth": "flat"}


def main() -> None:
    """Measure, and write results/search_speed.json; with --quick print alone."""
    quick = "--quick" in sys.argv[1:]
    wanted = [name for name in sys.argv[1:] if name != "--quick"]
    if unknown := sorted(set(wanted) - set(SECTIONS)):
        raise SystemExit(f"wanted sections among {sorted(SECTIONS)}, got {unknown}")
    # Whatever starts threads of its own then shares one core with them, ours and the peers' alike.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    numbers = {name: measure(quick) for name, measure in SECTIONS.items() if not wanted or name in wanted}
    about = {"what": "medians of rounds, per second of processor time on one core", "aims": AIMS}
    if quick:
        print(about | numbers)
    elif wanted:
        known = json.loads((RESULTS / "search_speed.json").read_text(encoding="utf-8"))
        again = {
            name: {"stamp": stamped({"load_average_beside": os.getloadavg()[0]}), **numbers[name]} for name in numbers
        }
        (RESULTS / "search_speed.json").write_text(laid_out(known | again), encoding="utf-8")
    else:
        write_result("search_speed", about | numbers)


if __name__ == "__main__":
    main()
