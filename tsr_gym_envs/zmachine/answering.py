"""The process behind a `Child`: it answers calls until its pipe is closed."""

import os
import pickle
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from inspect import isgenerator
from multiprocessing.connection import Connection
from typing import Any

from tsr_gym.optional import load
from tsr_gym.orphans import end_with_parent

# The extra that brings a library, by the name that its absence is reported under.
EXTRAS = {"jericho": "jericho", "textarena": "textarena", "textworld": "textworld"}


def main(descriptor: int, operations: str) -> None:
    """Answer the calls that come through a pipe.

    Args:
        descriptor: The pipe's.
        operations: As in `Child`.
    """
    # A story that never answers would be waited for by a process that no one asks any more.
    end_with_parent()
    pipe = Connection(descriptor)
    make: Any = load(operations)
    by_name: Mapping[str, Callable[..., Any]] = make()
    pipe.send_bytes(pickle.dumps(os.getpid()))
    while True:
        try:
            name, given, seconds = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        loaded = partial(pipe.send_bytes, pickle.dumps(("loaded", None)))
        pipe.send_bytes(pickle.dumps(_answer(partial(by_name[name], *given), seconds, loaded)))


def _answer(operation: Callable[[], Any], seconds: float, loaded: Callable[[], None]) -> tuple[str, Any]:
    try:
        answer = operation()
        return "answer", _finished(answer, seconds, loaded) if isgenerator(answer) else answer
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            return "failed", f"{error}"
        return "missing", (missing, EXTRAS[missing])
    # Every error goes back to the caller, of any type.
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"


def _finished(operation: Any, seconds: float, loaded: Callable[[], None]) -> Any:
    """Return the result of an operation that yields once, between loading and the part that has a limit."""
    next(operation)
    loaded()
    # The kernel ends this process after so much of its processor time, also in a loop of the interpreter's own code.
    # A busy machine takes nothing from that time.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        next(operation)
    except StopIteration as end:
        return end.value
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    raise RuntimeError("wanted an operation that yields once")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
