"""The process behind a `Child`: it answers calls until its pipe is closed."""

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from tsr_gym.optional import load

# The extra that brings a library, by the name that its absence is reported under.
EXTRAS = {"jericho": "jericho", "textarena": "textarena", "textworld": "textworld"}


def main(descriptor: int, operations: str) -> None:
    """Answer the calls that come through a pipe.

    Args:
        descriptor: The pipe's.
        operations: As in `Child`.
    """
    pipe = Connection(descriptor)
    make: Any = load(operations)
    by_name: Mapping[str, Callable[..., Any]] = make()
    pipe.send_bytes(pickle.dumps(os.getpid()))
    while True:
        try:
            name, given = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        pipe.send_bytes(pickle.dumps(_answer(by_name[name], given)))


def _answer(operation: Callable[..., Any], given: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        return "answer", operation(*given)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            return "failed", f"{error}"
        return "missing", (missing, EXTRAS[missing])
    # Every error goes back to the caller, of any type.
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
