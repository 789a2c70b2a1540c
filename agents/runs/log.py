"""RunLog: the logs of a run (JSON lines, TensorBoard, trees), and the lock that keeps a second process away from them.

Readers need no torch. The operating system releases the lock when its process ends, however it ends, so no lock is ever
stale.
"""

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import time, time_ns
from typing import Any, Literal
from uuid import uuid4

from tsr_gym.errors import CheckpointError, ConfigError, shown
from tsr_gym.files import locked, read_regular, write_atomically
from tsr_gym.records import to_json
from tsr_gym.tree import Tree

Record = dict[str, Any]
Event = Literal["update", "evaluation"]
LOCK, OWNER = ".lock", ".owner.json"


# Called with each record of a run that was just written: "update" comes with a line of metrics.jsonl, "evaluation" with
# a line of evaluations.jsonl. Both have the number of updates done as `step`; `update_record` and `evaluation_record`
# make the other fields.
Watch = Callable[[Event, Record], None]


@contextmanager
def training_lock(run: Path) -> Iterator[None]:
    """Keep other processes from training a run.

    Args:
        run: Folder of the run.

    Raises:
        ConfigError: Another process trains it; the message names the process and how long it has held the lock.
        TsrGymError: The folder cannot be locked.
    """
    owner = run / "checkpoints" / OWNER
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(owner.with_name(LOCK), wait=0))
        except ConfigError as error:
            raise ConfigError(
                f"{run} is being trained by {_describe_owner(owner)}: stop that process or wait for its end, or begin "
                "another run by --out"
            ) from error
        # The file serves messages only. A full disk is reported where logs and checkpoints are written.
        with suppress(OSError):
            write_atomically(owner, json.dumps({"host": platform.node(), "pid": os.getpid(), "since": time()}).encode())
        stack.callback(owner.unlink, missing_ok=True)
        yield


def _describe_owner(file: Path) -> str:
    """Return the process that holds a lock in words, as far as its file is readable."""
    try:
        owner = json.loads(file.read_bytes())
        minutes = (time() - owner["since"]) / 60
        return f"process {owner['pid']} on {owner['host']}, for {minutes:.0f} minutes"
    except (OSError, ValueError, TypeError, KeyError):
        return "another process"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise CheckpointError about `path` if the disk is full or not writable."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{path} could not be written ({error}): make room and resume") from error


class JsonLines:
    """A log file of JSON objects, one per line, each with a ``step``.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: dict[str, Any]) -> None:
        """Append a line and wait until it is on the disk.

        Raises:
            CheckpointError: The disk is full or not writable.
        """
        with writing(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(to_json(record) + "\n")
            # Without this a power cut could lose lines of updates whose checkpoint is on the disk.
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[dict[str, Any]]:
        """Return all records, without a last line that was cut short by a kill.

        Raises:
            CheckpointError: The file cannot be read, or a line is damaged; the message has its number.
        """
        if not self.path.exists():
            return []
        try:
            *whole, last = read_regular(self.path).split(b"\n")
        except OSError as error:
            raise CheckpointError(f"{self.path} could not be read ({error})") from error
        # Every whole line ends with a line break. What follows the last one is either the beginning of a record that a
        # kill cut short, which a resumed run writes again, or damage, which must not be dropped in silence.
        lines = [*whole, last] if last and not _is_torn(last) else whole
        return [self._record(line, number) for number, line in enumerate(lines, start=1)]

    def _record(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            record = json.loads(line)
            if isinstance(record, dict) and type(record["step"]) is int and record["step"] >= 0:
                return record
        except (ValueError, KeyError, RecursionError):
            pass
        raise CheckpointError(
            f"{self.path}, line {number}: wanted an object with a step, got {shown(line)}: the file is damaged; "
            "mend or delete that line"
        )

    def cut_after(self, step: int) -> None:
        """Drop the lines after a step, which a resumed run writes again.

        Raises:
            CheckpointError: The disk is full or not writable, or a line is damaged; the file is then as it was.
        """
        lines = [to_json(record) for record in self.read() if record["step"] <= step]
        with writing(self.path):
            write_atomically(self.path, "".join(line + "\n" for line in lines).encode())


def _is_torn(line: bytes) -> bool:
    """Return whether a last line is the beginning of an object, cut short."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return line.startswith(b"{")
    return False


class Board:
    """A file of numbers for TensorBoard, without the threads of its own writer, whose errors nothing can catch.

    Args:
        folder: Where TensorBoard looks for files.
        purge_step: TensorBoard hides numbers of this step and later ones that earlier files have.
    """

    def __init__(self, folder: Path, *, purge_step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        # TensorBoard reads files in the order of their names, also those of one second.
        self.path = folder / f"events.out.tfevents.{time_ns()}.{platform.node()}.{os.getpid()}.{uuid4().hex}"
        with writing(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "wb")  # noqa: SIM115
            self._write(Event(wall_time=time(), file_version="brain.Event:2"))
            self._write(Event(wall_time=time(), step=purge_step, session_log=SessionLog(status=SessionLog.START)))

    def add(self, numbers: Mapping[str, float], step: int) -> None:
        """Write the numbers of a step, by the names of their curves.

        Raises:
            OSError: The disk is full or not writable.
        """
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        self._write(Event(wall_time=time(), step=step, summary=Summary(value=values)))

    def _write(self, event: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        RecordWriter(self._file).write(event.SerializeToString())
        self._file.flush()

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


class RunLog:
    """The logs of a run in its folder: ``metrics.jsonl``, ``evaluations.jsonl``, ``tensorboard/`` and ``trees/``.

    Args:
        folder: Folder of the run.
        writes: Whether this process writes; of several processes only the first one does.
    """

    def __init__(self, folder: Path, *, writes: bool = True) -> None:
        self.folder = folder
        self.writes = writes
        self.metrics = JsonLines(folder / "metrics.jsonl")
        self.evaluations = JsonLines(folder / "evaluations.jsonl")
        self._board: Board | None = None
        self._watch: Watch = lambda event, record: None

    @contextmanager
    def opened(self, update: int, watch: Watch) -> Iterator[None]:
        """Hold the lock of the run and the file of TensorBoard open.

        Args:
            update: Updates done; later ones that TensorBoard has from before an interruption are hidden.
            watch: Called with each record that is written.

        Raises:
            CheckpointError: The folder of the run was moved or deleted.
            ConfigError: Another process trains this run, or has trained it since its caller read it.
        """
        if not self.writes:
            yield
            return
        # The lock would make a folder that is not there.
        if not self.folder.is_dir():
            raise CheckpointError(f"{self.folder}: the run was moved or deleted: resume it where it is now")
        with training_lock(self.folder):
            # The lock was free between the reading of the checkpoint and now.
            later = [record["step"] for record in self.metrics.read() if record["step"] > update]
            if later:
                raise ConfigError(
                    f"{self.folder} was trained to update {later[-1]} after this trainer read update {update}: resume "
                    "it again"
                )
            with Board(self.folder / "tensorboard", purge_step=update + 1) as board:
                self._board, self._watch = board, watch
                yield

    def update(self, record: Record) -> None:
        """Write the record of an update.

        Raises:
            CheckpointError: The disk is full or not writable.
        """
        self._write(self.metrics, "train", "update", record)

    def evaluation(self, record: Record) -> None:
        """Write the record of an evaluation.

        Raises:
            CheckpointError: The disk is full or not writable.
        """
        self._write(self.evaluations, "evaluation", "evaluation", record)

    def save_trees(self, update: int, trees: Sequence[Sequence[Tree]]) -> None:
        """Write the trees of some task instances of an update.

        Raises:
            CheckpointError: The disk is full or not writable.
        """
        folder = self.folder / "trees" / f"{update:06d}"
        if not self.writes:
            return
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for group, grown in enumerate(trees):
                for number, tree in enumerate(grown):
                    tree.save(folder / f"{group:02d}-{number:02d}.jsonl.gz")

    def cut_after(self, update: int) -> None:
        """Drop the lines after an update, which a resumed run writes again.

        Raises:
            CheckpointError: The disk is full or not writable, or a line is damaged.
            ConfigError: Another process trains this run.
        """
        if self.writes:
            with training_lock(self.folder):
                self.metrics.cut_after(update)
                self.evaluations.cut_after(update)

    def _write(self, lines: JsonLines, tab: str, event: Event, record: Record) -> None:
        if self._board is None:
            return
        lines.append(record)
        numbers = {key: value for key, value in record.items() if isinstance(value, (int, float)) and key != "step"}
        with writing(self._board.path):
            self._board.add({f"{tab}/{key}": float(value) for key, value in numbers.items()}, record["step"])
        self._watch(event, record)
