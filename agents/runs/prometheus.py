"""Prometheus: the latest numbers of a run in the text that Prometheus reads, in a file.

The textfile collector of node_exporter picks such files up, so that a run needs no port and no library.
Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tsr_gym.agents.runs.log import Record, writing
from tsr_gym.files import write_atomically

PREFIX = "tsr"


class MetricsFile:
    """A file with the latest update and the latest evaluation of a run; a `Watch` for `Trainer.run`.

    Args:
        path: The file, which is replaced as a whole; node_exporter wants the ending ``.prom``.
        run: What the run is called in the label ``run``.

    Raises:
        CheckpointError: The disk is full or not writable.
    """

    def __init__(self, path: Path, run: str) -> None:
        self.path = path
        self.run = run
        self._latest: dict[str, Record] = {}

    def __call__(self, kind: str, record: Record) -> None:
        """Write the file with a record that has just been made, ``"update"`` or ``"evaluation"``."""
        self._latest[kind] = record
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, exposition(self._latest, run=self.run).encode())


def exposition(records: Mapping[str, Record], *, run: str) -> str:
    """Return records in Prometheus' text format: a gauge for each number, with the run as a label.

    Numbers of a part, such as the seconds of an update, are one gauge with the label ``part``. Words, lists and what is
    not known are left out.

    >>> print(exposition({"update": {"step": 3, "seconds": {"model": 0.5}, "kl": None}}, run="a"), end="")
    # TYPE tsr_update_step gauge
    tsr_update_step{run="a"} 3
    # TYPE tsr_update_seconds gauge
    tsr_update_seconds{run="a",part="model"} 0.5
    """
    lines = []
    for kind, record in records.items():
        for name, value in record.items():
            if samples := list(_samples(value)):
                gauge = f"{PREFIX}_{kind}_{name}"
                lines.append(f"# TYPE {gauge} gauge")
                for part, number in samples:
                    labels = {"run": run} | ({"part": part} if part else {})
                    told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
                    lines.append(f"{gauge}{{{told}}} {number!r}")
    return "".join(f"{line}\n" for line in lines)


def _samples(value: Any) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a value with the names of their parts, empty where it has none."""
    parts = value.items() if isinstance(value, dict) else [("", value)]
    for part, number in parts:
        if isinstance(number, int | float) and not isinstance(number, bool):
            yield part, number


def _escaped(text: str) -> str:
    """Return a text as the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
