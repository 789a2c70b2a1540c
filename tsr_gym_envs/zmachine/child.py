"""Child: a process that answers calls, and is ended where it does not answer in time.

An interpreter may hang, and its library may end the process that it lives in. Both become `NoAnswer`, which a caller
can handle, and the next call starts the process anew. Loading a game, a busy machine and a process that was ended from
outside are no facts of the game: they never become `NoAnswer`. What is asked must not depend on what was asked before.
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

from tsr_gym import MissingExtra, TsrGymError

ANSWERING = "tsr_gym_envs.zmachine.answering"
# To start a process, import what it needs and load a game, on a busy machine.
LOAD_SECONDS = 600.0
# The longest processor time of an operation: a day.
MAX_SECONDS = 86_400.0
# How often a question is asked whose process was ended from outside, or ended itself.
ASKED = 3
_OUTSIDE = frozenset(-number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP))


class InterpreterFailed(TsrGymError):
    """An interpreter or its library failed at what it was asked, or could not be started."""


class NoAnswer(InterpreterFailed):
    """A game used up the time of a command, or ends its process whenever it gets that command."""


class Child:
    """A process that answers the calls of some operations; it is started at the first call.

    Args:
        operations: ``"package.module:name"`` of a function that returns the operations by name.
    """

    def __init__(self, operations: str) -> None:
        self.operations = operations
        self._lock = RLock()
        self._pid: int | None = None
        self._pipe: Connection | None = None
        self._stop: Any = None

    def ask(self, name: str, *given: Any, seconds: float = LOAD_SECONDS) -> Any:
        """Run an operation in the child process and return its result.

        Args:
            name: Of the operation. One that is a generator yields once, when it has loaded what it needs.
            given: Its arguments, which can be pickled.
            seconds: Processor time of the process from that `yield` on, after which it is ended.

        Raises:
            NoAnswer: The operation took more than that time, or ended its process each time after loading.
            InterpreterFailed: The operation raised an error, loading took longer than `LOAD_SECONDS`, or something else
                ended the process each time.
            MissingExtra: A library is not installed.
        """
        question = pickle.dumps((name, given, seconds))
        with self._lock:
            ends: list[_End] = []
            while len(ends) < ASKED:
                end = self._asked(name, question, seconds)
                if isinstance(end, _End):
                    if end.status == -signal.SIGPROF:
                        raise NoAnswer(f"{name} took more than {seconds:g} s of processor time")
                    ends.append(end)
                    continue
                status, answer = end
                if status == "missing":
                    raise MissingExtra(*answer)
                if status == "failed":
                    raise InterpreterFailed(answer)
                return answer
        error = NoAnswer if all(end.loaded and end.status not in _OUTSIDE for end in ends) else InterpreterFailed
        raise error(f"the process ended {ASKED} times during {name}, with status {[end.status for end in ends]}")

    def stop(self) -> int | None:
        """End the process, if there is one, and return its exit status."""
        status = self._stop() if self._stop is not None and self._pid == os.getpid() else None
        self._pipe = self._stop = None
        return status

    def _asked(self, name: str, question: bytes, seconds: float) -> "tuple[str, Any] | _End":
        limit, loaded = LOAD_SECONDS, False
        try:
            pipe = self._started()
            pipe.send_bytes(question)
            while True:
                if not pipe.poll(limit):
                    raise InterpreterFailed(f"no answer to {name} within {limit:g} s: is this machine overloaded?")
                status, answer = pickle.loads(pipe.recv_bytes())
                if status != "loaded":
                    return status, answer
                limit, loaded = LOAD_SECONDS + seconds, True
        except (EOFError, OSError):
            return _End(self.stop(), loaded)
        except BaseException:
            # Also where a user interrupts: the next question would get the answer to this one.
            self.stop()
            raise

    def _started(self) -> Connection:
        # A process that was forked has its parent's pipe, which it must not speak into.
        if self._pipe is not None and self._pid == os.getpid():
            return self._pipe
        ours, theirs = socket.socketpair()
        # Stories print, and save files where they stand.
        folder = tempfile.TemporaryDirectory(prefix="tsr-gym-")
        process = subprocess.Popen(
            [sys.executable, "-m", ANSWERING, str(theirs.fileno()), self.operations],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder.name,
            env=_surroundings(),
        )
        theirs.close()
        pipe = Connection(ours.detach())
        self._pid, self._pipe = os.getpid(), pipe
        self._stop = weakref.finalize(self, _end, process, pipe, folder, self._pid)
        if not pipe.poll(LOAD_SECONDS):
            raise InterpreterFailed(f"the process did not start within {LOAD_SECONDS:g} s")
        pipe.recv_bytes()
        return pipe

    def __reduce__(self) -> tuple[Any, ...]:
        return Child, (self.operations,)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Child":
        # No operation depends on earlier ones, so copies of an environment can share the process.
        return self


class _End(NamedTuple):
    """The end of a process: its exit status, and whether the question was loaded before."""

    status: int | None
    loaded: bool


@cache
def shared_child(operations: str) -> Child:
    """Return this process's child for some operations: environments share it, because it remembers nothing."""
    return Child(operations)


def _surroundings() -> dict[str, str]:
    """Return the environment variables of a child: what it makes must not depend on the order of sets."""
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _end(
    process: "subprocess.Popen[bytes]", pipe: Connection, folder: "tempfile.TemporaryDirectory[str]", pid: int
) -> int | None:
    if pid == os.getpid():
        # This does not change the status of a process that is about to end.
        process.kill()
        process.wait()
        folder.cleanup()
    pipe.close()
    return process.returncode
