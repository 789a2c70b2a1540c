"""The lock of a run: one process at a time trains it, and others are told which one.

The system gives a lock back when its process ends, however it ends; so none is ever stale.
"""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import time

from tsr_gym.errors import ConfigError
from tsr_gym.files import locked, write_atomically

LOCK, OWNER = ".lock", ".owner.json"


@contextmanager
def held(run: Path) -> Iterator[None]:
    """Keep other processes from training a run.

    Args:
        run: Its folder.

    Raises:
        ConfigError: Another process trains it; the message says which one, and since when.
        TsrGymError: The folder cannot be locked.
    """
    owner = run / "checkpoints" / OWNER
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(owner.with_name(LOCK), wait=0))
        except ConfigError as error:
            raise ConfigError(
                f"{run} is being trained by {_words(owner)}: stop that process or wait for its end, or begin another "
                "run by --out"
            ) from error
        # For messages alone, so a full disk is told by those who write what counts.
        with suppress(OSError):
            write_atomically(owner, json.dumps({"host": platform.node(), "pid": os.getpid(), "since": time()}).encode())
        stack.callback(owner.unlink, missing_ok=True)
        yield


def _words(owner: Path) -> str:
    """Return who holds a lock, as far as its file tells."""
    try:
        known = json.loads(owner.read_bytes())
        minutes = (time() - known["since"]) / 60
        return f"process {known['pid']} on {known['host']}, for {minutes:.0f} minutes"
    except (OSError, ValueError, TypeError, KeyError):
        return "another process"
