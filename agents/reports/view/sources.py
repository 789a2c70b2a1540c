"""Sources: the runs and the files of trees that some paths stand for, each by a name that stays the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tsr_gym.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Sources:
    """What there is to look at.

    Attributes:
        runs: Folders of runs by name.
        trees: Files of trees by name; the trees of a run bear the run's name before a slash.
    """

    runs: Mapping[str, Path]
    trees: Mapping[str, Path]


def find_sources(paths: Sequence[Path]) -> Sources:
    """Return the runs and trees that paths stand for, in their order.

    Args:
        paths: Folders of runs, folders that hold runs or trees, or files of trees.

    Raises:
        ConfigError: There is no path, or one leads to nothing.
    """
    if not paths:
        raise ConfigError("wanted the folder of a run or a file of a tree, got none")
    runs: dict[str, Path] = {}
    trees: dict[str, Path] = {}
    for path in paths:
        if path.is_file():
            trees[_unused(path.stem, trees)] = path
            continue
        if not path.is_dir():
            raise ConfigError(f"{path}: wanted the folder of a run or a file of a tree, found nothing")
        folders = _runs_in(path)
        for folder in folders:
            name = _unused(folder.resolve().name, runs)
            runs[name] = folder
            trees |= _trees_in(name, folder / "trees")
        found = {} if folders else _trees_in(_unused(path.resolve().name, runs), path)
        if not folders and not found:
            raise ConfigError(f"{path}: found neither a run nor trees; a run saves trees at checkpoints (--save-trees)")
        trees |= found
    return Sources(runs, trees)


def _runs_in(folder: Path) -> list[Path]:
    """Return the runs that a folder is or holds."""
    if (folder / "config.json").is_file() or (folder / "metrics.jsonl").is_file():
        return [folder]
    return sorted(file.parent for file in folder.rglob("metrics.jsonl"))


def _trees_in(name: str, folder: Path) -> dict[str, Path]:
    files = sorted(folder.rglob("*.jsonl"))
    return {f"{name}/{file.relative_to(folder).with_suffix('').as_posix()}": file for file in files}


def _unused(name: str, taken: Mapping[str, Path]) -> str:
    """Return a name, with a number behind it where it is taken."""
    number, wanted = 1, name
    while wanted in taken:
        number += 1
        wanted = f"{name}-{number}"
    return wanted
