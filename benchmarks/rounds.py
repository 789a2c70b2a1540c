"""Both sides of a comparison in turns, so that whatever else the machine does falls on both."""

import gc
from collections.abc import Mapping
from statistics import median
from time import process_time
from typing import Any

from grid_peers import Work


def alternate(works: Mapping[str, Work], rounds: int) -> dict[str, dict[str, Any]]:
    """Return units per second of processor time: the median, least and largest of some rounds.

    Every work runs once before anything is timed. What exists then is no longer looked at by the garbage collector, so
    that no side pays for the other's objects.
    """
    for work in works.values():
        work.run()
    gc.collect()
    gc.freeze()
    rates: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            started = process_time()
            work.run()
            rates[name].append(work.units / (process_time() - started))
    gc.unfreeze()
    return {
        name: {"median": median(one), "min": min(one), "max": max(one), "units": works[name].units, "how": work.how}
        for (name, one), work in zip(rates.items(), works.values(), strict=True)
    }
