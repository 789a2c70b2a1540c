"""End a process that was started to work for another one, when that one has ended."""

import os
from multiprocessing import parent_process
from threading import Thread
from time import sleep

# How often to look, in seconds.
_EVERY = 0.5


def end_with_parent() -> None:
    """End this process soon after the one that started it has ended, however that one ended; return at once.

    A process that is killed by a signal ends none of those that it started.
    """
    starter = parent_process()
    parent = os.getppid() if starter is None or starter.pid is None else starter.pid

    def watch() -> None:
        while os.getppid() == parent:
            sleep(_EVERY)
        os._exit(1)

    Thread(target=watch, daemon=True).start()
