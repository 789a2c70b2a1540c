"""Start states: states in the middle of episodes that are worth practising, harvested from trees and kept in a bank.

Starting where success is neither certain nor out of reach is a curriculum (reverse curricula, arXiv 1707.05300); the
snapshots of a tree make every state a possible start. Success rates are those of the search that grew the tree.
"""

import base64
import json
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np

from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.codec import decode, digest, encode
from tsr_gym.errors import ConfigError, InvalidTree, SnapshotError, TsrGymError, shown
from tsr_gym.files import read_regular, write_atomically
from tsr_gym.keywords import choose, no_such, parse_call
from tsr_gym.ranges import check_counts, check_range
from tsr_gym.records import plain, to_json
from tsr_gym.snapshots import EnvState, Snapshot
from tsr_gym.tree import Node, Tree

FORMAT = "tsr-gym start states"
VERSION = 1
Preference = Literal["uncertain", "hard", "uniform"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartState:
    """A state from which an episode can be started.

    Attributes:
        key: Identity: equal for start states of one environment, with one set of rules, in the same state.
        env: The environment's id, None where it has none.
        rules: The environment's rules, as JSON, for people who read the file; the snapshot holds them, too.
        seed: Seed of the tree that it is from.
        depth: Turns from the first node of that tree.
        observation: The observation in this state.
        snapshot: The state itself.
        visits: Number of paths of the tree that went through it.
        tries: Number of those paths whose outcome is known.
        successes: Number of `tries` that solved the task.
    """

    key: str
    env: str | None
    rules: str
    seed: int
    depth: int
    observation: Any
    snapshot: Snapshot
    visits: float
    tries: float
    successes: float

    def __post_init__(self) -> None:
        if not (inf > self.visits >= self.tries >= self.successes >= 0 and self.tries > 0):
            counts = (self.visits, self.tries, self.successes)
            raise ValueError(f"wanted visits >= tries >= successes >= 0 and some tries, got {counts}")

    @property
    def success_rate(self) -> float:
        """The share of tries that solved the task."""
        return self.successes / self.tries

    @property
    def start(self) -> dict[str, Any]:
        """The options of a `reset` that starts an episode here, on new dice."""
        # A `StateEnv` computes the observation from its state. A snapshot of another environment has none, and a reset
        # there would show the observation of another state.
        shows_itself = isinstance(self.snapshot.layers[-1].state, EnvState)
        return {"snapshot": self.snapshot} | ({} if shows_itself else {"observation": self.observation})


class Outcomes(NamedTuple):
    """Counts of the paths through a node.

    Attributes:
        visits: All paths.
        tries: Paths that ended, or that are proven lost.
        successes: Paths that solved the task.
    """

    visits: float
    tries: float
    successes: float


def outcomes(tree: Tree, *, solved: Callable[[Node], bool] = lambda node: node.solved) -> Outcomes:
    """Return the counts of the paths from the root of a tree, which may be a start state.

    Args:
        tree: A grown tree.
        solved: Whether a leaf is a success; for environments that do not report it in their info.
    """
    # A leaf that is still open was left by the search: it counts as a visit, but its outcome is unknown.
    leaves = [tree.nodes[leaf] for leaf in tree.leaves()]
    return Outcomes(len(leaves), sum(not leaf.is_open for leaf in leaves), sum(map(solved, leaves)))


def harvest_start_states(
    tree: Tree,
    *,
    threshold: float = 1.0,
    min_tries: int = 2,
    turns: bool = True,
    solved: Callable[[Node], bool] = lambda node: node.solved,
) -> list[StartState]:
    """Return the states of a tree from which some paths succeeded and others failed, in the order in which they grew.

    A path counts once for every state on it, also where it returns to the state. Dead ends count as failures.

    Args:
        tree: A grown tree, with snapshots.
        threshold: States with a success rate above 0 and below this are returned.
        min_tries: Least number of paths with a known outcome.
        turns: Whether the remaining turns and actions are part of a state.
        solved: Whether a leaf is a success; for environments that do not report it in their info.

    Raises:
        ValueError: A number is out of range.
        TsrGymError: The tree was saved without snapshots.
    """
    check_range(above=0, most=1, threshold=threshold)
    check_counts(min_tries=min_tries)
    counts = _count(tree, turns, solved)
    uncertain = {
        key for key, (_, tries, successes) in counts.items() if tries >= min_tries and 0 < successes < threshold * tries
    }
    first: dict[Hashable, int] = {}
    for index in sorted(tree.below()):
        state = _state(tree, index, turns)
        if state in uncertain and tree.nodes[index].is_open:
            first.setdefault(state, index)
    return [_start_state(tree, index, state, counts[state]) for state, index in first.items()]


def _state(tree: Tree, index: int, turns: bool) -> Hashable:
    """Return the identity of a node's state; that of the node where the environment has no state keys."""
    key = tree.key(index, turns=turns)
    return ("node", index) if key is None else key


def _count(tree: Tree, turns: bool, solved: Callable[[Node], bool]) -> dict[Hashable, Outcomes]:
    visits: Counter[Hashable] = Counter()
    tries: Counter[Hashable] = Counter()
    successes: Counter[Hashable] = Counter()
    for leaf in tree.leaves():
        end = tree.nodes[leaf]
        # A set, so that a path that comes back to a state counts once for it.
        states = {_state(tree, index, turns) for index in tree.path(leaf)}
        visits.update(states)
        if not end.is_open:
            tries.update(states)
        if solved(end):
            successes.update(states)
    return {state: Outcomes(visits[state], tries[state], successes[state]) for state in visits}


def _start_state(tree: Tree, index: int, state: Hashable, counted: Outcomes) -> StartState:
    node = tree.nodes[index]
    if node.snapshot is None:
        raise TsrGymError("the tree was saved without snapshots: nothing can be started from it")
    env, rules = tree.about.get("env"), json.dumps(tree.about.get("rules"), sort_keys=True, default=plain)
    # The state key has no random state in it, so the same state reached on other dice is one start state.
    identity = node.snapshot.digest if node.state_key is None else state
    return StartState(
        key=digest((env, rules, identity)),
        env=env,
        rules=rules,
        seed=tree.seed,
        depth=node.depth,
        observation=node.observation,
        snapshot=node.snapshot,
        **counted._asdict(),
    )


class StartStateBank:
    """Start states by their identity, in the order in which they were first added."""

    def __init__(self) -> None:
        self._states: dict[str, StartState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, key: str) -> bool:
        return key in self._states

    def __iter__(self) -> Iterator[StartState]:
        return iter(self._states.values())

    def add(self, start_states: Iterable[StartState]) -> int:
        """Add start states and return the number of new ones; counts of a state that is there already are added up."""
        before = len(self)
        for start_state in start_states:
            if start_state.key in self._states:
                self.update(start_state, Outcomes(start_state.visits, start_state.tries, start_state.successes))
            else:
                self._states[start_state.key] = start_state
        return len(self) - before

    def update(self, start_state: StartState, new: Outcomes) -> StartState:
        """Add the outcomes of a tree that grew from a start state, and return the updated start state.

        Raises:
            KeyError: The bank has no such start state.
        """
        old = self._states[start_state.key]
        updated = replace(
            old, visits=old.visits + new.visits, tries=old.tries + new.tries, successes=old.successes + new.successes
        )
        self._states[start_state.key] = updated
        return updated

    def keep_last(self, most: int) -> None:
        """Drop the start states that were added first, until at most `most` are left."""
        for key in list(self._states)[: max(0, len(self) - most)]:
            del self._states[key]

    def sample(self, rng: np.random.Generator, num: int = 1, *, prefer: Preference = "uncertain") -> list[StartState]:
        """Draw start states, with replacement.

        Args:
            rng: Draws.
            num: How many.
            prefer: ``"uncertain"`` draws by ``p (1 - p)``, the variance of the outcome; ``"hard"`` by ``1 - p``;
                ``"uniform"`` all with equal probability. Here p is ``(successes + 1) / (tries + 2)``, which stays near
                1/2 after few tries.

        Raises:
            ValueError: There is no such preference, or no start state.
        """
        if prefer not in get_args(Preference):
            raise ValueError(f"wanted prefer of {list(get_args(Preference))}, got {prefer!r}")
        if not self._states:
            raise ValueError("there is no start state to draw: the bank is empty")
        states = list(self)
        weights = np.array([_weight(state, prefer) for state in states])
        return [states[pick] for pick in rng.choice(len(states), size=num, p=weights / weights.sum())]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bank as JSON lines, a header and a line per start state; an older file is replaced only when done.

        Raises:
            SnapshotError: A snapshot or an observation has no pickle-free form.
        """
        lines = [json.dumps({"format": FORMAT, "version": VERSION, "start_states": len(self)})]
        lines += [to_json(_to_json(start_state)) for start_state in self]
        write_atomically(Path(path), ("\n".join(lines) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "StartStateBank":
        """Read a bank that `save` wrote.

        Raises:
            InvalidTree: The file is damaged, cut short or of another format; the message names the line.
            OSError: The file cannot be read.
        """
        data = read_regular(Path(path))
        bank = None
        try:
            header, *lines = data.decode().splitlines() or ["{}"]
            count = _read_header(header, path)
            bank = cls()
            for line in lines:
                bank.add([_from_json(json.loads(line))])
            if not len(lines) == len(bank) == count:
                raise InvalidTree(
                    f"{path}: wanted {count} different start states, got {len(bank)} in {len(lines)} lines"
                )
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, SnapshotError) as error:
            if isinstance(error, InvalidTree):
                raise
            # Each line before the damaged one is a state of the bank, and the header is line 1.
            number = 1 if bank is None else len(bank) + 2
            raise InvalidTree(f"{path}, line {number}: not a start state ({error}): damaged") from error
        return bank


def _weight(start_state: StartState, prefer: Preference) -> float:
    chance = (start_state.successes + 1) / (start_state.tries + 2)
    return {"uncertain": chance * (1 - chance), "hard": 1 - chance, "uniform": 1.0}[prefer]


def _read_header(line: str, path: str | os.PathLike[str]) -> int:
    header = json.loads(line)
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        got = (header.get("format"), header.get("version"))
        raise InvalidTree(f"{path}: wanted {FORMAT!r} of version {VERSION}, got {got}")
    return int(header["start_states"])


def _to_json(start_state: StartState) -> dict[str, Any]:
    seen = start_state.observation
    return {
        "key": start_state.key,
        "env": start_state.env,
        "rules": start_state.rules,
        "seed": start_state.seed,
        "depth": start_state.depth,
        "visits": start_state.visits,
        "tries": start_state.tries,
        "successes": start_state.successes,
        "observation": seen if isinstance(seen, str) else {"encoded": _text(encode(seen))},
        "snapshot": _text(start_state.snapshot.to_bytes()),
    }


_WANTED = {
    **dict.fromkeys(("key", "rules"), (str,)),
    "env": (str, NoneType),
    **dict.fromkeys(("seed", "depth"), (int,)),
    **dict.fromkeys(("visits", "tries", "successes"), (int, float)),
}


def _from_json(data: dict[str, Any]) -> StartState:
    for name, types in _WANTED.items():
        if type(data[name]) not in types:
            raise ValueError(
                f"wanted {name} as {' or '.join(each.__name__ for each in types)}, got {shown(data[name])}"
            )
    seen, snapshot = data.pop("observation"), Snapshot.from_bytes(_bytes(data.pop("snapshot")))
    return StartState(
        observation=seen if isinstance(seen, str) else decode(_bytes(seen["encoded"]), snapshot.packages),
        snapshot=snapshot,
        **data,
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


class Begun(NamedTuple):
    """Result of a group that began at a start state.

    Attributes:
        start_state: Where it began.
        tries: Its episodes of plain play; all of its episodes where there is no plain play.
        successes: Those of them that solved the task.
    """

    start_state: StartState
    tries: int
    successes: int

    @classmethod
    def of(cls, start_state: StartState, group: Group) -> "Begun":
        """Return the result of a group."""
        # Plain play shows the success of the policy; searched episodes were selected and would overstate it.
        ended = [trajectory for trajectory in group.trajectories if trajectory.finished]
        counted = [trajectory for trajectory in ended if trajectory.selected_by == "naive"] or ended
        return cls(start_state, len(counted), sum(trajectory.success for trajectory in counted))


@runtime_checkable
class Starts(Protocol):
    """Choice of the states at which groups begin; a class with these methods can be named by ``package.module:Name``.

    Attributes:
        bank: The start states to draw from.
    """

    bank: StartStateBank

    def keep(self, trees: Sequence[Tree], begun: Sequence[Begun]) -> None:
        """Learn from how groups went that began at start states, and keep the start states of an update's trees."""

    def draw(self, rng: np.random.Generator) -> StartState:
        """Return the start state at which a group is to begin, from a bank that is not empty."""

    def numbers(self) -> dict[str, Any]:
        """Return everything that is remembered in addition to the bank, as JSON's own types."""

    def recall(self, numbers: Mapping[str, Any]) -> None:
        """Restore what `numbers` returned; the bank is restored already."""


class States:
    """States from which some paths of a tree succeeded and others failed, drawn by the variance of their outcome."""

    def __init__(self) -> None:
        self.bank = StartStateBank()

    def keep(self, trees: Sequence[Tree], begun: Sequence[Begun]) -> None:
        """Keep the start states of some trees; a group that began at a start state adds to the counts of that state."""
        # A harvest leaves out states whose paths all failed, so these groups count by their results.
        keys = {result.start_state.key for result in begun}
        for tree in trees:
            self.bank.add(start_state for start_state in harvest_start_states(tree) if start_state.key not in keys)
        for result in begun:
            if result.start_state.key in self.bank:
                self.bank.update(result.start_state, Outcomes(result.tries, result.tries, result.successes))

    def draw(self, rng: np.random.Generator) -> StartState:
        """Return a start state by ``p (1 - p)``, see `StartStateBank.sample`."""
        return self.bank.sample(rng)[0]

    def numbers(self) -> dict[str, Any]:
        """Return an empty dictionary, because the bank is all."""
        return {}

    def recall(self, numbers: Mapping[str, Any]) -> None:
        """Do nothing, because the bank is all."""


# Classes by the words that configurations have for them.
NAMES = {"states": f"{__name__}:States"}


def choose_starts(text: str) -> "partial[Any]":
    """Return the class of starts that a text such as ``"package.module:Name(number=3)"`` names, its numbers bound.

    Called without arguments, it makes starts with an empty bank.

    Args:
        text: One of `NAMES`, or ``package.module:Name``, with its numbers.

    Raises:
        ConfigError: There are no such starts, or they cannot have these numbers.
    """
    call = parse_call(text, what="kind of start states")
    if ":" not in call.name and call.name not in NAMES:
        raise no_such("kind of start states", call.name, list(NAMES))
    written = str(call._replace(name=NAMES.get(call.name, call.name)))

    def check(make: Callable[[], Any]) -> None:
        starts = make()
        if not isinstance(starts, Starts):
            raise ConfigError(
                f"{text} makes a {type(starts).__name__}: wanted a class with the methods of {__name__}:Starts"
            )

    return choose(written, home=__name__, what="kind of start states", takes=0, trial=check)
