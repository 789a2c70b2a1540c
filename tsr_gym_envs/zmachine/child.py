"""Child: a process that answers calls, and is ended where it does not answer in time.

An interpreter may hang, and its library may end the process that it lives in. Both become errors that a caller can
handle, and the next call starts the process anew. What is asked must not depend on what was asked before.
"""

import os
import pickle
import socket
import subprocess
import sys
import tempfile
import weakref
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from threading import RLock
from typing import Any

from tsr_gym import MissingExtra, TsrGymError

ANSWERING = "tsr_gym_envs.zmachine.answering"
# To start a process and import what it needs, on a busy machine.
START_SECONDS = 120.0


class InterpreterFailed(TsrGymError):
    """An interpreter or its library failed at what it was asked."""


class NoAnswer(InterpreterFailed):
    """An interpreter gave no answer in its time, or ended its process; the next call starts it anew."""


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

    def ask(self, name: str, *given: Any, seconds: float | None = None) -> Any:
        """Run an operation in the child process and return its result.

        Args:
            name: Of the operation.
            given: Its arguments, which can be pickled.
            seconds: When to give up and end the process; None waits for ever.

        Raises:
            NoAnswer: There was no answer in that time, or the process ended.
            InterpreterFailed: The operation raised an error.
            MissingExtra: A library is not installed.
        """
        with self._lock:
            question = pickle.dumps((name, given))
            try:
                status, answer = self._asked(question, seconds)
            except (EOFError, OSError):
                # The process may have been ended from outside since the last call, so the operation is tried once
                # more: one that ends the process itself does so again.
                self.stop()
                try:
                    status, answer = self._asked(question, seconds)
                except (EOFError, OSError) as error:
                    self.stop()
                    raise NoAnswer(f"the process ended during {name}") from error
        if status == "missing":
            raise MissingExtra(*answer)
        if status == "failed":
            raise InterpreterFailed(answer)
        return answer

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._stop is not None and self._pid == os.getpid():
            self._stop()
        self._pipe = self._stop = None

    def _asked(self, question: bytes, seconds: float | None) -> tuple[str, Any]:
        pipe = self._started()
        try:
            pipe.send_bytes(question)
            if not pipe.poll(seconds):
                raise NoAnswer(f"nothing came within {seconds:g} s")
            status, answer = pickle.loads(pipe.recv_bytes())
        except BaseException:
            # Also where a user interrupts: the next question would get the answer to this one.
            self.stop()
            raise
        return status, answer

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
        if not pipe.poll(START_SECONDS):
            self.stop()
            raise NoAnswer(f"the process did not start within {START_SECONDS:g} s")
        pipe.recv_bytes()
        return pipe

    def __reduce__(self) -> tuple[Any, ...]:
        return Child, (self.operations,)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Child":
        # No operation depends on earlier ones, so copies of an environment can share the process.
        return self


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
) -> None:
    if pid == os.getpid():
        process.kill()
        process.wait()
        folder.cleanup()
    pipe.close()
