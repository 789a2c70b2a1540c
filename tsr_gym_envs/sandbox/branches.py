"""Branches: one sandbox that goes to any state of any branch, by a kept snapshot or by repeating commands.

A state is named by its task, its commands and the digest after them. Snapshots are a cache of states: the
`max_snapshots` last used ones are kept, all others are deleted. A state whose snapshot was deleted, or was taken in
another process, is made again from the nearest kept state, and its digest is compared.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, NamedTuple

from tsr_gym import ConfigError
from tsr_gym.errors import ReplayDiverged
from tsr_gym_envs.sandbox.backend import CommandStopped, Ran, SandboxFile, SnapshotBackend

# Decides by the files whether a task is solved: True or False, or its progress from 0 to 1.
FileChecker = Callable[[dict[str, SandboxFile]], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxTask:
    """A task in a sandbox.

    Attributes:
        text: What the agent is asked for.
        checker: A command that exits with 0 if the task is solved, which is undone; or a function of the files, which
            returns whether it is solved, or a progress from 0 to 1.
        files: Path below the folder, and the file, at the beginning.
        setup: Commands that are run before the agent's.
        commands: Commands that uniform random play draws from.
    """

    text: str
    checker: str | FileChecker
    files: tuple[tuple[str, SandboxFile], ...] = ()
    setup: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


class Place(NamedTuple):
    """The name of a state: the number of a task, the commands since its beginning, and the digest after them."""

    task: int
    commands: tuple[str, ...]
    digest: bytes


BLANK = Place(-1, (), b"")


class Branches:
    """A sandbox and the snapshots that are kept. It opens at its first use, and again after `close`.

    Copies within a process share it; a pickled one opens a new sandbox.

    Args:
        make_backend: Makes the sandbox.
        tasks: The tasks.
        max_snapshots: How many snapshots are kept, without that of the empty folder.
    """

    def __init__(
        self, make_backend: Callable[[], SnapshotBackend], tasks: Sequence[SandboxTask], max_snapshots: int
    ) -> None:
        self.make_backend, self.tasks, self.max_snapshots = make_backend, tuple(tasks), max_snapshots
        self._lock = RLock()
        self._pid = os.getpid()
        self._backend: SnapshotBackend | None = None
        self._handles: OrderedDict[Place, str] = OrderedDict()
        # The state that the sandbox is in; None if it is none.
        self._at: Place | None = None
        self._progresses: dict[tuple[int, bytes], float] = {}

    def begin(self, task: int) -> tuple[Place, float]:
        """Return the beginning of a task and its progress."""
        with self._lock:
            kept = next((place for place in self._handles if place.task == task and not place.commands), None)
            place = self._set_up(task) if kept is None else kept
            return place, self._progress(place)

    def run(self, start: Place, command: str) -> tuple[Place, Ran, float]:
        """Return the state that a command leads to, its result, and the progress there.

        Raises:
            CommandStopped: The command reached a limit.
            ReplayDiverged: The start had to be made again, and became another one.
            SandboxFailed: The sandbox failed.
        """
        with self._lock:
            self._go(start)
            try:
                place, ran = self._take(start, command)
            except CommandStopped:
                self._at = None
                raise
            return place, ran, self._progress(place)

    def files(self, place: Place) -> dict[str, SandboxFile]:
        """Return the files of a state."""
        with self._lock:
            return self._go(place).files()

    def close(self) -> None:
        """Free the sandbox and all snapshots."""
        with self._lock:
            if self._backend is not None and self._pid == os.getpid():
                self._backend.close()
            self._forget()

    @property
    def num_kept(self) -> int:
        """The number of snapshots."""
        return len(self._handles)

    def _forget(self) -> None:
        self._pid, self._backend, self._at = os.getpid(), None, None
        self._handles.clear()
        self._progresses.clear()

    def _opened(self) -> SnapshotBackend:
        # A process that was forked must leave its parent's sandbox alone.
        if self._pid != os.getpid():
            self._forget()
        if self._backend is None:
            self._backend = self.make_backend()
            self._keep(BLANK)
        return self._backend

    def _keep(self, place: Place) -> None:
        """Keep a snapshot of the sandbox, which is in a state, and delete the oldest ones."""
        backend = self._opened()
        if place not in self._handles:
            self._handles[place] = backend.snapshot()
        self._handles.move_to_end(place)
        self._handles.move_to_end(BLANK)
        while len(self._handles) > self.max_snapshots + 1:
            _, handle = self._handles.popitem(last=False)
            backend.delete(handle)
        self._at = place

    def _take(self, start: Place, command: str) -> tuple[Place, Ran]:
        """Run a command in the present state, and keep the state after it."""
        backend = self._opened()
        self._at = None
        ran = backend.run(command)
        place = Place(start.task, (*start.commands, command), backend.digest())
        self._keep(place)
        return place, ran

    def _go(self, place: Place) -> SnapshotBackend:
        """Set the sandbox to a state."""
        backend = self._opened()
        if self._at != place:
            self._at = None
            handle = self._handles.get(place)
            if handle is None:
                self._repeat(place)
            else:
                backend.restore(handle)
                self._handles.move_to_end(place)
                self._handles.move_to_end(BLANK)
                self._at = place
        return backend

    def _repeat(self, place: Place) -> None:
        """Make a state again, from the nearest state that is kept."""
        befores = [
            other
            for other in self._handles
            if other.task == place.task
            and len(other.commands) < len(place.commands)
            and other.commands == place.commands[: len(other.commands)]
        ]
        nearest = max(befores, key=lambda other: len(other.commands)) if befores else self._set_up(place.task)
        self._go(nearest)
        try:
            for command in place.commands[len(nearest.commands) :]:
                nearest, _ = self._take(nearest, command)
        except CommandStopped as error:
            raise ReplayDiverged(
                f"{command[:80]!r} has a result no more, when its state is repeated: {error}"
            ) from None
        if nearest != place:
            raise ReplayDiverged(
                f"the state after {place.commands[-1:]} was made again and has other files: a command depends on a "
                "clock, on random numbers or on the machine; raise max_snapshots, so that states are kept"
            )

    def _set_up(self, task: int) -> Place:
        """Make the beginning of a task."""
        backend, about = self._opened(), self.tasks[task]
        self._at = None
        backend.restore(self._handles[BLANK])
        backend.put(dict(about.files))
        for command in about.setup:
            try:
                ran = backend.run(command)
            except CommandStopped as error:
                raise ConfigError(f"the setup of task {task} cannot run {command[:80]!r}: {error}") from None
            if ran.status:
                raise ConfigError(f"the setup {command[:80]!r} of task {task} failed: {ran.output[-300:]}")
        place = Place(task, (), backend.digest())
        self._keep(place)
        return place

    def _progress(self, place: Place) -> float:
        """Return the checker's verdict on the present state; equal files have one verdict."""
        key = (place.task, place.digest)
        if key not in self._progresses:
            backend, checker = self._go(place), self.tasks[place.task].checker
            if isinstance(checker, str):
                # The next command starts from the snapshot again.
                self._at = None
                try:
                    self._progresses[key] = float(backend.run(checker).status == 0)
                except CommandStopped:
                    self._progresses[key] = 0.0
            else:
                self._progresses[key] = min(max(float(checker(backend.files())), 0.0), 1.0)
        return self._progresses[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return Branches, (self.make_backend, self.tasks, self.max_snapshots)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Branches":
        return self
