"""What a process shares: the global random generators and the clocks, watched and shifted.

The one file of the project that touches the module `random` and numpy's legacy generator, because it looks for others
that do.
"""

import datetime
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FrameType, ModuleType
from typing import Any

import numpy as np

from tsr_gym.random_stream import position_of

GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
CLOCKS = ("time", "monotonic", "perf_counter", "process_time")
_EPOCH = 1_700_000_000
_NOT_TO_BLAME = ("random", "numpy", "tsr_gym.testing")


def position_of_any(value: Any) -> Any:
    """Return where a generator of any of `GENERATORS` stands."""
    if isinstance(value, np.random.Generator):
        return position_of(value)
    if isinstance(value, np.random.BitGenerator):
        return value.state
    return value.getstate() if isinstance(value, random.Random) else value.get_state()


def global_random_state() -> tuple[Any, ...]:
    """Return where the generators of `random` and of `numpy.random` stand, as a value that compares."""
    name, key, *rest = np.random.get_state()  # noqa: NPY002
    return random.getstate(), name, np.asarray(key).tobytes(), *rest


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Set the global generators for a while, and put them back."""
    before, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.setstate(random.Random(seed).getstate())
    np.random.set_state(np.random.RandomState(seed).get_state())  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(legacy)  # noqa: NPY002


def who_draws(play: Callable[[], object]) -> list[str]:
    """Return the functions that advance a global generator while `play` runs, in order of first use."""
    found: dict[str, None] = {}
    last = global_random_state()

    def watch(frame: FrameType, event: str, arg: object) -> None:
        nonlocal last
        now = global_random_state()
        if now != last:
            # A call event comes from the function that is entered: its caller was running until then.
            found[_blamed(frame.f_back if event == "call" else frame)] = None
            last = now

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        play()
    finally:
        sys.setprofile(before)
    return list(found)


@contextmanager
def shifted_clocks(modules: set[ModuleType], hours: int) -> Iterator[list[str]]:
    """Replace the clocks by ones that start on a fixed day, `hours` later, and tick at every reading.

    Args:
        modules: Modules that may have imported a clock by name; `time` and `datetime` are always changed.
        hours: By how much.

    Yields:
        The functions that read a clock, filled in as they do; Gymnasium's own are left out.
    """
    readers: list[str] = []
    start = _EPOCH + 3600 * hours
    fakes: dict[Any, Any] = {datetime.datetime: _late_datetime(start, readers)}
    for name in CLOCKS:
        fakes[vars(time)[name]] = _ticking(float(start), 0.001, readers)
        fakes[vars(time)[f"{name}_ns"]] = _ticking(start * 10**9, 10**6, readers)
    kinds = (type, BuiltinFunctionType)
    places = [
        (vars(module), name, value)
        for module in {time, datetime, *modules}
        for name, value in vars(module).items()
        if isinstance(value, kinds) and value in fakes
    ]
    for where, name, value in places:
        where[name] = fakes[value]
    try:
        yield readers
    finally:
        for where, name, value in places:
            where[name] = value


def _ticking(start: float, tick: float, readers: list[str]) -> Callable[[], float]:
    now = start

    def clock() -> float:
        nonlocal now
        now += tick
        _note(readers)
        return now

    return clock


def _late_datetime(start: float, readers: list[str]) -> type:
    class LateDatetime(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            _note(readers)
            return cls.fromtimestamp(start, tz)

    return LateDatetime


def _note(readers: list[str]) -> None:
    frame = sys._getframe(2)
    name = _blamed(frame)
    if name not in readers and not str(frame.f_globals.get("__name__")).startswith("gymnasium."):
        readers.append(name)


def _blamed(frame: FrameType | None) -> str:
    """Return the innermost function that belongs to no library, with its place."""
    where = frame
    while where is not None and str(where.f_globals.get("__name__")).startswith(_NOT_TO_BLAME):
        where = where.f_back
    where = where or frame
    if where is None:
        return "an unknown function"
    return f"{where.f_code.co_qualname} ({where.f_code.co_filename}:{where.f_lineno})"
