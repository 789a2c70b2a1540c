"""RunLog: what a run writes down as it goes, for people and programs to read: lines, TensorBoard and trees."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from tsr_gym.agents.runs.files import JsonLines, writing
from tsr_gym.tree import Tree

Record = dict[str, Any]
Watch = Callable[[str, Record], None]


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
        """
        if not self.writes:
            yield
            return
        with SummaryWriter(self.folder / "tensorboard", purge_step=update + 1) as board:
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
            CheckpointError: The disk is full or not writable.
        """
        if self.writes:
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
