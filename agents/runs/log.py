"""RunLog: what a run writes down as it goes, for people and programs to read: lines, TensorBoard and trees.

Torch-free for those who only read.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsr_gym.agents.runs.lock import held
from tsr_gym.errors import CheckpointError, shown
from tsr_gym.files import write_atomically
from tsr_gym.tree import Tree

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Record = dict[str, Any]
Watch = Callable[[str, Record], None]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the errors of a disk that is full or not writable into a CheckpointError about `path`."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{path} could not be written ({error}): make room and resume") from error


class JsonLines:
    """A log of JSON objects with a ``step`` each, one a line.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: dict[str, Any]) -> None:
        """Add a line and see it written.

        Raises:
            CheckpointError: The disk is full or not writable.
        """
        with writing(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[dict[str, Any]]:
        """Return all lines; a last one that was cut short by a kill is left out.

        Raises:
            CheckpointError: The file cannot be read, or a line is damaged; the message names it.
        """
        if not self.path.exists():
            return []
        try:
            *whole, last = self.path.read_bytes().split(b"\n")
        except OSError as error:
            raise CheckpointError(f"{self.path} could not be read ({error})") from error
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
        """Drop the lines after a step, which will be written again.

        Raises:
            CheckpointError: The disk is full or not writable, or a line is damaged; the file is then as it was.
        """
        lines = [json.dumps(record) for record in self.read() if record["step"] <= step]
        with writing(self.path):
            write_atomically(self.path, "".join(line + "\n" for line in lines).encode())


def _is_torn(line: bytes) -> bool:
    """Return whether a line without an end is the beginning of an object."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return line.startswith(b"{")
    return False


class RunLog:
    """The logs of a run in its folder: ``metrics.jsonl``, ``evaluations.jsonl``, ``tensorboard/`` and ``trees/``.

    Args:
        folder: Of the run.
        writes: Whether this process is the one that writes; the others write nothing and are silent.
    """

    def __init__(self, folder: Path, *, writes: bool = True) -> None:
        self.folder = folder
        self.writes = writes
        self.metrics = JsonLines(folder / "metrics.jsonl")
        self.evaluations = JsonLines(folder / "evaluations.jsonl")
        self._board: SummaryWriter | None = None
        self._watch: Watch = lambda kind, record: None

    @contextmanager
    def opened(self, update: int, watch: Watch) -> Iterator[None]:
        """Write from an update on.

        Args:
            update: Updates done; TensorBoard shows none after it twice.
            watch: Called with ``"update"`` or ``"evaluation"`` and the record that was just written.

        Raises:
            ConfigError: Another process trains this run.
        """
        if not self.writes:
            yield
            return
        # Whoever only reads logs needs no torch.
        from torch.utils.tensorboard import SummaryWriter

        with held(self.folder), SummaryWriter(self.folder / "tensorboard", purge_step=update + 1) as board:
            self._board, self._watch = board, watch
            yield

    def update(self, record: Record) -> None:
        """Write down an update.

        Raises:
            CheckpointError: The disk is full or not writable.
        """
        self._write(self.metrics, "train", "update", record)

    def evaluation(self, record: Record) -> None:
        """Write down an evaluation.

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
                    tree.save(folder / f"{group:02d}-{number:02d}.jsonl")

    def cut_after(self, update: int) -> None:
        """Drop the lines after an update, which will be written again.

        Raises:
            CheckpointError: The disk is full or not writable, or a line is damaged.
            ConfigError: Another process trains this run.
        """
        if self.writes:
            with held(self.folder):
                self.metrics.cut_after(update)
                self.evaluations.cut_after(update)

    def _write(self, lines: JsonLines, tab: str, kind: str, record: Record) -> None:
        if self._board is None:
            return
        lines.append(record)
        for key, value in record.items():
            if isinstance(value, (int, float)) and key != "step":
                self._board.add_scalar(f"{tab}/{key}", value, record["step"])
        self._watch(kind, record)
