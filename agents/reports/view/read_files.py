"""Read trees, runs and tokenizers for the viewer; a damaged file is read up to the damage."""

import json
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

from tsr_gym.agents.config import RUN_FILE, TrainConfig
from tsr_gym.agents.config.recipes import read_config_file
from tsr_gym.agents.reports.diagnosis import Finding, at_random, diagnose
from tsr_gym.agents.reports.methods import label_of
from tsr_gym.errors import ConfigError, InvalidTree, shown
from tsr_gym.files import read_regular, read_unzipped
from tsr_gym.node import node_from_json
from tsr_gym.tree import DAMAGE, FORMAT, SCORES_OF, VERSION, Tree


@dataclass(frozen=True, slots=True)
class SeenTree:
    """The readable part of a tree's file.

    Attributes:
        tree: Its nodes, without their snapshots.
        snapshots: Snapshot of each node, undecoded base64; None where the file holds none.
        note: The damage of the file; empty for a whole file.
    """

    tree: Tree
    snapshots: tuple[str | None, ...]
    note: str


def read_tree(path: Path, within: Path | None = None) -> SeenTree:
    """Return the tree in a file, up to the first line that is not whole.

    Args:
        path: The file.
        within: See `read_regular`.

    Raises:
        InvalidTree: Not even the header and the first node can be read.
        OSError: The file cannot be read, or a link leaves the folder.
    """
    content, damage = read_unzipped(path, within=within)
    lines = content.splitlines()
    header = tree_header(lines[0] if lines else b"", path)
    tree = Tree(seed=header["seed"], score_of=header["score_of"], about=header["about"])
    played, snapshots, note = set(_ints(header.get("played"))), [], ""
    for number, line in enumerate(lines[1:], start=2):
        try:
            data = json.loads(line)
            snapshot = data.pop("snapshot")
            tree.add(node_from_json({**data, "snapshot": None}), played=number - 2 in played)
        except DAMAGE:
            note = damage or f"line {number} is not whole"
            break
        snapshots.append(snapshot if isinstance(snapshot, str) else None)
    if not tree.nodes:
        raise InvalidTree(f"{path}: wanted a tree with at least its first node, got none: the file is cut short")
    total = header.get("nodes")
    note = note or damage
    if note or total != len(tree.nodes):
        note = f"{note or 'the file is cut short'}: {len(tree.nodes):,} nodes shown of {shown(total)}"
    tree.choose([index for index in _ints(header.get("chosen")) if 0 <= index < len(tree.nodes)])
    return SeenTree(tree, tuple(snapshots), note)


def tree_header(line: bytes, path: Path) -> dict[str, Any]:
    """Return the first line of a tree's file.

    Raises:
        InvalidTree: The line is not the header of a tree.
    """
    try:
        header: dict[str, Any] = json.loads(line)
        readable = header["format"] == FORMAT and header["version"] == VERSION and header["score_of"] in SCORES_OF
        if readable and type(header["seed"]) is int and header["seed"] >= 0 and isinstance(header["about"], dict):
            return header
    except DAMAGE:
        pass
    raise InvalidTree(f"{path}: wanted a {FORMAT!r} of version {VERSION}, got {shown(line)}")


def _ints(values: object) -> Iterable[int]:
    return [value for value in values if type(value) is int] if isinstance(values, list) else []


Record = dict[str, Any]

# Columns of ``metrics.jsonl`` that a run page draws.
METRICS = (
    *("success", "reward_mean", "entropy", "grad_norm", "response_length", "turns", "sampled_tokens", "env_steps"),
    *("valid", "groups_kept", "groups", "share_search", "price_play", "price_search"),
)
_EVALUATED = ("success", "total_reward", "turns", "response_length")


def read_run(folder: Path) -> dict[str, Any]:
    """Return the data of a run page, in JSON's types.

    Args:
        folder: Of the run; missing and damaged parts are left out and named in ``notes``.

    Returns:
        ``label``, ``env``, ``about`` (settings by name), ``updates`` and ``evaluations`` (columns by name, with
        ``step`` and ``tokens``), ``counters`` (groups: sampled, kept, and dropped by reason), ``findings``, ``notes``.
    """
    config, *notes = _read_config(folder / RUN_FILE)
    updates, update_notes = whole_lines(folder / "metrics.jsonl")
    evaluations, evaluation_notes = whole_lines(folder / "evaluations.jsonl")
    return {
        "label": _label(folder),
        "env": config.get("env"),
        "about": _about(config),
        "updates": _columns(updates, METRICS),
        "evaluations": _columns(evaluations, _EVALUATED) | {"interval": list(map(_pair, evaluations))},
        "counters": _counters(updates),
        "findings": [asdict(finding) for finding in _findings(updates, evaluations)],
        "notes": [*notes, *update_notes, *evaluation_notes],
    }


def whole_lines(path: Path) -> tuple[list[Record], list[str]]:
    """Return the lines of a log up to the first that is not an object with a step, and a note about that line."""
    if not path.exists() and not path.is_symlink():
        return [], [f"{path.name}: not written yet"]
    try:
        lines = read_regular(path, within=path.parent).splitlines()
    except OSError as error:
        return [], [str(error)]
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            if type(record["step"]) is not int:
                raise ValueError
        except (ValueError, LookupError, TypeError, RecursionError):
            return records, [f"{path.name}, line {number}: not whole; shown up to the line before"]
        records.append(record)
    return records, []


def _read_config(path: Path) -> tuple[Any, ...]:
    """Return a run's settings, followed by a note where they cannot be read."""
    try:
        return (tomllib.loads(read_regular(path, within=path.parent).decode()),)
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"{path.name}: cannot be read ({error})"


def _label(folder: Path) -> str:
    try:
        return label_of(TrainConfig.load(folder, bound=False))
    except ConfigError:
        return folder.name


def _about(config: Record) -> dict[str, str]:
    """Return the settings by section and name, as text."""
    sections = [(config, "")] + [(part, f"{name}.") for name, part in config.items() if isinstance(part, dict)]
    return {
        f"{prefix}{name}": value if isinstance(value, str) else json.dumps(value)
        for section, prefix in sections
        for name, value in section.items()
        if not isinstance(value, dict)
    }


def is_finite(value: float) -> bool:
    """Return whether a number is finite and not beyond a float, which whole numbers in a file may be."""
    try:
        return isfinite(value)
    except OverflowError:
        return False


def _number(value: object) -> float | int | None:
    """Return a number that JSON can hold, None for anything else."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and is_finite(value) else None


def _columns(records: Sequence[Record], names: Sequence[str]) -> dict[str, list[Any]]:
    columns = {name: [_number(record.get(name)) for record in records] for name in names}
    ends = {"step": [record["step"] for record in records]}
    return {**ends, "tokens": [_number(record.get("sampled_tokens_total")) for record in records], **columns}


def _pair(record: Record) -> list[float | int | None] | None:
    interval = record.get("interval")
    return list(map(_number, interval)) if isinstance(interval, list) and len(interval) == 2 else None


def _counters(updates: Sequence[Record]) -> dict[str, Any]:
    """Return the numbers of groups that were sampled, that were learned from, and that were dropped, by reason."""
    dropped: Counter[str] = Counter()
    for record in updates:
        reasons = record.get("dropped")
        for reason, count in reasons.items() if isinstance(reasons, Mapping) else ():
            dropped[reason] += int(_number(count) or 0)
    seen, kept = (sum(int(_number(record.get(name)) or 0) for record in updates) for name in ("groups", "groups_kept"))
    return {"groups": seen, "kept": kept, "dropped": dict(dropped.most_common())}


def _findings(updates: Sequence[Record], evaluations: Sequence[Record]) -> list[Finding]:
    numbers = [{name: _number(value) for name, value in record.items()} for record in updates]
    bar = _number(evaluations[0].get("random")) if evaluations else None
    random_play = at_random(numbers, bar)
    return [*diagnose(numbers), *([random_play] if random_play else [])]


Spell = Callable[[Sequence[int]], list[str]]


def find_spelling(folder: Path) -> Spell | None:
    """Return a function that spells the tokens of a run; None where no tokenizer is found or can be read.

    Args:
        folder: Of the run; the tokenizer is that of its newest checkpoint, or else of its first model.
    """
    try:
        # The viewer also works without the extra `agents`.
        from tokenizers import Tokenizer
    except ImportError:
        return None
    for file in _tokenizer_files(folder):
        # The library raises plain exceptions for a damaged file.
        try:
            return spelling_of(Tokenizer.from_file(str(file)))
        except Exception:
            continue
    return None


def spelling_of(tokenizer: Any) -> Spell:
    """Return a function that spells tokens in their context, so that the pieces add up to the decoded text."""

    def spell(ids: Sequence[int]) -> list[str]:
        return list(_pieces(tuple(ids)))

    @lru_cache(maxsize=4096)
    def _pieces(ids: tuple[int, ...]) -> tuple[str, ...]:
        pieces, start = [], 0
        for number in range(len(ids)):
            # Tokenizers join characters and spaces across tokens, so a token is decoded with a few tokens before it and
            # the text of those is cut off. A longer context would make long texts slow.
            start = max(0, number - _CONTEXT)
            before = decode(ids[start:number])
            after = decode(ids[start : number + 1])
            pieces.append(after[len(before) :] if after.startswith(before) else decode(ids[number : number + 1]))
        return tuple(pieces)

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False)) if ids else ""

    return spell


_CONTEXT = 4


def _tokenizer_files(folder: Path) -> list[Path]:
    saved = sorted(folder.glob("checkpoints/*/model/tokenizer.json"), reverse=True)
    try:
        model = read_config_file(folder / RUN_FILE).settings["model"]
    except (ConfigError, LookupError):
        model = None
    began = Path(model) / "tokenizer.json" if isinstance(model, str) else None
    own = [file for file in saved if file.is_file() and file.resolve().is_relative_to(folder.resolve())]
    return [*own, *([began] if began is not None and began.is_file() else [])]
