"""Tasks of the shell: several parts, the checker of their conditions, and an oracle that continues from any state.

The number of commands of a task's plan is its depth.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tsr_gym.codec import encode
from tsr_gym_envs.settings import in_split
from tsr_gym_envs.shell.families import FAMILIES, Condition, Draw, Part
from tsr_gym_envs.shell.files import FOLDER, HOME, Files, Table, beginning, is_kind, table_of
from tsr_gym_envs.shell.names import NAMES, WORDS
from tsr_gym_envs.shell.session import Refused, Session, ShellLimits, run

MAX_DEPTH = 8
LEAVE = "Leave every other file as it is; /tmp is free for your own files."
_SCRATCH = "/tmp/"
_LIMITS = ShellLimits()


class TaskKey(NamedTuple):
    """What decides a task.

    Attributes:
        number: The seed that it is drawn from.
        min_depth: Fewest commands of its plan.
        max_depth: Most commands of its plan.
        style: A key of `FAMILIES`.
    """

    number: int
    min_depth: int
    max_depth: int
    style: str


class Task(NamedTuple):
    """A task.

    Attributes:
        text: What is asked.
        files: The files at the beginning.
        parts: Its parts.
        form: Bytes that tasks share if they are equal up to the names of files and folders and the words in files.
    """

    text: str
    files: Files
    parts: tuple[Part, ...]
    form: bytes

    @property
    def plan(self) -> tuple[str, ...]:
        """The commands that solve the task from its beginning; their number is its depth."""
        return tuple(command for part in self.parts for command in part.plan)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All conditions but the last one: that the other files stay as they are."""
        return tuple(condition for part in self.parts for condition in part.conditions)


# A hundred tasks of a training run are visited again and again, by every branch of a tree.
@lru_cache(maxsize=4096)
def make_task(key: TaskKey) -> Task:
    """Return the task of a key."""
    draw = Draw(np.random.default_rng([key.number, *key.style.encode()]))
    left, families, parts = draw.number(key.min_depth, key.max_depth), dict(FAMILIES[key.style]), []
    while left:
        fitting = [family for family, cost in families.items() if cost <= left]
        # No family comes twice, while there are others.
        family = draw.among(fitting or list(FAMILIES[key.style]))
        if FAMILIES[key.style][family] > left:
            continue
        families.pop(family, None)
        parts.append(family(draw))
        left -= len(parts[-1].plan)
    contents = {path: text for part in parts for path, text in part.contents.items()}
    for _ in range(draw.number(1, 3)):
        contents[draw.name()] = "".join(f"{word}\n" for word in draw.words(draw.number(1, 3)))
    files = beginning({f"{HOME}/{path}": text for path, text in contents.items()}, {})
    sentences = [part.sentence for part in parts]
    if key.style == "words":
        return Task(" then ".join(sentences), files, tuple(parts), _form(sentences, contents))
    text = sentences[0] if len(sentences) == 1 else " ".join(f"({n}) {s}" for n, s in enumerate(sentences, start=1))
    return Task(f"{text} {LEAVE}", files, tuple(parts), _form(sentences, contents))


def _form(sentences: list[str], contents: dict[str, str]) -> bytes:
    """Return the words of a task and its files in the order of their making, with names as numbers."""
    names, numbers = frozenset(NAMES) | frozenset(WORDS), dict[str, int]()
    text = "\n".join([*sentences, *(f"{path} {content}" for path, content in contents.items())])
    parts, word = [], ""
    for letter in f"{text}\n":
        if letter.isalpha():
            word += letter
            continue
        parts += [f"#{numbers.setdefault(word, len(numbers))}" if word in names else word, letter]
        word = ""
    return encode("".join(parts))


def draw_number(rng: np.random.Generator, key: TaskKey, split: str) -> int:
    """Return the number of a task of a split."""
    while True:
        number = int(rng.integers(1 << 31))
        if in_split(make_task(key._replace(number=number)).form, split):
            return number


@lru_cache(maxsize=8192)
def verdict(key: TaskKey, files: Files) -> tuple[bool, ...]:
    """Return whether each condition of a task is met, and at the end whether the other files are as they were."""
    task, table = make_task(key), table_of(files)
    return (*(_is_met(condition, files, table) for condition in task.conditions), not _strays(task, table))


def _is_met(condition: Condition, files: Files, table: Table) -> bool:
    for wanted in condition.files:
        if wanted.content is None:
            if wanted.path in table:
                return False
            continue
        mode, content = table.get(wanted.path, (FOLDER, b""))
        if is_kind(mode, FOLDER) or _plain(content) != _plain(wanted.content.encode()):
            return False
        if wanted.mode is not None and mode & 0o777 != wanted.mode:
            return False
    if condition.command is None:
        return True
    try:
        return run(Session(files), condition.command, _LIMITS).output == condition.prints
    except Refused:
        return False


def _plain(content: bytes) -> list[bytes]:
    return [line.rstrip() for line in content.rstrip().split(b"\n")]


def _concern(task: Task) -> frozenset[str]:
    """Return the paths that a task asks to change, and the folders that they lie in."""
    paths = {wanted.path for condition in task.conditions for wanted in condition.files}
    scripts = {f"{HOME}/{part.plan[0].split()[-1]}" for part in task.parts if part.conditions[0].command}
    return frozenset(paths | scripts)


def _strays(task: Task, table: Table) -> list[str]:
    """Return the paths that differ from the beginning without being asked to."""
    concern, before = _concern(task), table_of(task.files)
    folders = {path.rpartition("/")[0] for path in concern}
    return [
        path
        for path in sorted(before.keys() | table.keys())
        if before.get(path) != table.get(path)
        and path not in concern
        and not path.startswith(_SCRATCH)
        and not (path in folders and is_kind(table.get(path, (0, b""))[0], FOLDER))
    ]


def is_solved(key: TaskKey, files: Files) -> bool:
    """Return whether all conditions are met, those that only the checker knows included."""
    return all(verdict(key, files))


def stated_share(key: TaskKey, files: Files) -> float:
    """Return the share of the conditions in a task's own words that are met."""
    task, results = make_task(key), verdict(key, files)
    stated = [met for condition, met in zip(task.conditions, results, strict=False) if condition.is_stated]
    return (sum(stated) + results[-1]) / (len(stated) + 1)


@lru_cache(maxsize=4096)
def best_plan(key: TaskKey, session: Session) -> tuple[str, ...] | None:
    """Return commands that solve a task from a session, as few as the plans of its parts allow.

    Every command is tried out. None where no plan works, as after the loss of a file.
    """
    task, commands = make_task(key), []
    repairs = _repairs(task, session)
    if session.folder != HOME and (repairs or not is_solved(key, session.files)):
        commands.append(f"cd {HOME}")
    reached = _after(session, tuple(commands + repairs))
    commands += repairs
    for part in task.parts:
        if reached is None:
            return None
        if all(_is_met(condition, reached.files, table_of(reached.files)) for condition in part.conditions):
            continue
        for start in reversed(range(len(part.plan))):
            after = _after(reached, part.plan[start:])
            if after and all(_is_met(condition, after.files, table_of(after.files)) for condition in part.conditions):
                commands += part.plan[start:]
                reached = after
                break
        else:
            return None
    return tuple(commands) if reached is not None and is_solved(key, reached.files) else None


def _repairs(task: Task, session: Session) -> list[str]:
    """Return commands that undo what can be undone: new files, and changed permissions."""
    before, table = table_of(task.files), table_of(session.files)
    commands = []
    for path in _strays(task, table):
        if path not in before:
            if not any(path.startswith(f"{other}/") for other in _strays(task, table) if other not in before):
                commands.append(f"rm -r '{path}'")
        elif path in table and table[path][1] == before[path][1]:
            commands.append(f"chmod {before[path][0] & 0o777:o} '{path}'")
    return commands


def _after(session: Session, commands: tuple[str, ...]) -> Session | None:
    try:
        for command in commands:
            session = run(session, command, _LIMITS).session
    except Refused:
        return None
    return session
