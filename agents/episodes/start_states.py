"""Moments: states in the middle of episodes that are worth practising, harvested from trees and kept in a bank.

Starting where success is neither certain nor out of reach is a curriculum (reverse curricula, arXiv 1707.05300); the
snapshots of a tree make every state a start. Outcomes are those of whoever grew the tree, search included.
"""

import base64
import json
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np

from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.codec import decode, digest, encode
from tsr_gym.errors import ConfigError, InvalidTree, SnapshotError, TsrGymError
from tsr_gym.files import write_atomically
from tsr_gym.keywords import choose, no_such, parse_call
from tsr_gym.node import plain
from tsr_gym.snapshots import EnvState, Snapshot
from tsr_gym.tree import Node, Tree

FORMAT = "tsr-gym moments"
VERSION = 1
Preference = Literal["uncertain", "hard", "uniform"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A state from which an episode can be started.

    Attributes:
        key: Identity: equal for moments of one environment, with one set of rules, in the same state.
        env: The environment's id, None where it has none.
        rules: The environment's rules, as JSON, for people who read the file; the snapshot holds them, too.
        seed: Seed of the tree that it is from.
        depth: Turns from the first node of that tree.
        observation: What is seen there.
        snapshot: The state, to start from.
        visits: Paths of the tree that went through it.
        tries: Those of them whose outcome is known.
        successes: Those of `tries` that solved the task.
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
        if not (self.visits >= self.tries >= self.successes >= 0 and self.tries > 0):
            found = (self.visits, self.tries, self.successes)
            raise ValueError(f"wanted visits >= tries >= successes >= 0 and some tries, got {found}")

    @property
    def success_rate(self) -> float:
        """The share of tries that solved the task."""
        return self.successes / self.tries

    @property
    def start(self) -> dict[str, Any]:
        """The options of a `reset` that starts an episode here, with dice of its own."""
        shows_itself = isinstance(self.snapshot.layers[-1].state, EnvState)
        return {"snapshot": self.snapshot} | ({} if shows_itself else {"observation": self.observation})


class Outcomes(NamedTuple):
    """What became of the paths through a node.

    Attributes:
        visits: Paths.
        tries: Paths that ended, or that are proven lost.
        successes: Paths that solved the task.
    """

    visits: float
    tries: float
    successes: float


def outcomes(tree: Tree, *, solved: Callable[[Node], bool] = lambda node: node.solved) -> Outcomes:
    """Return what became of the paths from the root of a tree, which may be a moment.

    Args:
        tree: A grown tree.
        solved: Whether a leaf is a success; for environments whose info does not say so.
    """
    leaves = [tree.nodes[leaf] for leaf in tree.leaves()]
    return Outcomes(len(leaves), sum(not leaf.is_open for leaf in leaves), sum(map(solved, leaves)))


def harvest_moments(
    tree: Tree,
    *,
    threshold: float = 1.0,
    min_tries: int = 2,
    turns: bool = True,
    solved: Callable[[Node], bool] = lambda node: node.solved,
) -> list[Moment]:
    """Return the states of a tree from which success is known and not certain, in the order in which they grew.

    A path counts once for every state that it went through, also where it came back to it. Dead ends count as failures.

    Args:
        tree: A grown tree, with snapshots.
        threshold: Success rates from 0 to this, both excluded, are wanted.
        min_tries: Fewest paths with a known outcome.
        turns: Whether the turns and actions that are left are part of a state.
        solved: Whether a leaf is a success; for environments whose info does not say so.

    Raises:
        ValueError: A number is out of range.
        TsrGymError: The tree was saved without snapshots.
    """
    if not 0 < threshold <= 1 or min_tries < 1:
        raise ValueError(f"wanted 0 < threshold <= 1 and min_tries >= 1, got {threshold} and {min_tries}")
    found = _count(tree, turns, solved)
    wanted = {
        key for key, (_, tries, successes) in found.items() if tries >= min_tries and 0 < successes < threshold * tries
    }
    nodes = [index for index in sorted(tree.below()) if _state(tree, index, turns) in wanted]
    return list(_moments(tree, nodes, turns, found).values())


def moments_at(tree: Tree, nodes: Iterable[int], *, turns: bool = True) -> dict[int, Moment]:
    """Return the moments of some nodes of a tree, by node, with what became of all paths through their states.

    Nodes from which nothing goes on, and those of whose paths no outcome is known, have none. Of nodes in the same
    state the first one has it.

    Args:
        tree: A grown tree, with snapshots.
        nodes: Of the tree.
        turns: Whether the turns and actions that are left are part of a state.

    Raises:
        TsrGymError: The tree was saved without snapshots.
    """
    return _moments(tree, nodes, turns, _count(tree, turns, lambda node: node.solved))


def _moments(tree: Tree, nodes: Iterable[int], turns: bool, found: dict[Hashable, Outcomes]) -> dict[int, Moment]:
    first: dict[Hashable, int] = {}
    for index in nodes:
        if tree.nodes[index].is_open and found[_state(tree, index, turns)].tries:
            first.setdefault(_state(tree, index, turns), index)
    return {index: _moment(tree, index, key, found[key]) for key, index in first.items()}


def _state(tree: Tree, index: int, turns: bool) -> Hashable:
    """Return the identity of a node's state; the node itself where nobody knows it."""
    key = tree.key(index, turns=turns)
    return ("node", index) if key is None else key


def _count(tree: Tree, turns: bool, solved: Callable[[Node], bool]) -> dict[Hashable, Outcomes]:
    visits: Counter[Hashable] = Counter()
    tries: Counter[Hashable] = Counter()
    successes: Counter[Hashable] = Counter()
    for leaf in tree.leaves():
        end = tree.nodes[leaf]
        states = {_state(tree, index, turns) for index in tree.path(leaf)}
        visits.update(states)
        if not end.is_open:
            tries.update(states)
        if solved(end):
            successes.update(states)
    return {state: Outcomes(visits[state], tries[state], successes[state]) for state in visits}


def _moment(tree: Tree, index: int, state: Hashable, counted: Outcomes) -> Moment:
    node = tree.nodes[index]
    if node.snapshot is None:
        raise TsrGymError("the tree was saved without snapshots: nothing can be started from it")
    env, rules = tree.about.get("env"), json.dumps(tree.about.get("rules"), sort_keys=True, default=plain)
    identity = node.snapshot.digest if node.state_key is None else state
    return Moment(
        key=digest((env, rules, identity)),
        env=env,
        rules=rules,
        seed=tree.seed,
        depth=node.depth,
        observation=node.observation,
        snapshot=node.snapshot,
        **counted._asdict(),
    )


class MomentBank:
    """Moments by their identity, in the order in which they were first added."""

    def __init__(self) -> None:
        self._moments: dict[str, Moment] = {}

    def __len__(self) -> int:
        return len(self._moments)

    def __contains__(self, key: str) -> bool:
        return key in self._moments

    def __iter__(self) -> Iterator[Moment]:
        return iter(self._moments.values())

    def add(self, moments: Iterable[Moment]) -> int:
        """Add moments; where one is known, what became of it is added to what was known. Return how many are new."""
        before = len(self)
        for moment in moments:
            if moment.key in self._moments:
                self.update(moment, Outcomes(moment.visits, moment.tries, moment.successes))
            else:
                self._moments[moment.key] = moment
        return len(self) - before

    def update(self, moment: Moment, new: Outcomes) -> Moment:
        """Add what `outcomes` says of a tree that was grown from a moment, and return the moment as it is now.

        Raises:
            KeyError: The bank has no such moment.
        """
        known = self._moments[moment.key]
        counts = (known.visits + new.visits, known.tries + new.tries, known.successes + new.successes)
        updated = replace(known, visits=counts[0], tries=counts[1], successes=counts[2])
        self._moments[moment.key] = updated
        return updated

    def keep_last(self, most: int) -> None:
        """Drop the moments that were added first, where there are more than so many."""
        for key in list(self._moments)[: max(0, len(self) - most)]:
            del self._moments[key]

    def sample(
        self,
        rng: np.random.Generator,
        num: int = 1,
        *,
        prefer: Preference = "uncertain",
    ) -> list[Moment]:
        """Draw moments, with replacement.

        Args:
            rng: Draws.
            num: How many.
            prefer: ``"uncertain"`` draws by ``p (1 - p)``, the variance of the outcome; ``"hard"`` by ``1 - p``;
                ``"uniform"`` all alike. Here p is ``(successes + 1) / (tries + 2)``, so that few tries say little.

        Raises:
            ValueError: There is no such preference, or no moment.
        """
        if prefer not in get_args(Preference):
            raise ValueError(f"wanted prefer of {list(get_args(Preference))}, got {prefer!r}")
        if not self._moments:
            raise ValueError("there is no moment to draw: the bank is empty")
        among = list(self)
        weights = np.array([_weight(moment, prefer) for moment in among])
        return [among[pick] for pick in rng.choice(len(among), size=num, p=weights / weights.sum())]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bank as JSON lines, a header and a line per moment; an older file is replaced only when done.

        Raises:
            SnapshotError: A snapshot or an observation has no pickle-free form.
        """
        lines = [json.dumps({"format": FORMAT, "version": VERSION, "moments": len(self)})]
        lines += [json.dumps(_to_json(moment)) for moment in self]
        write_atomically(Path(path), ("\n".join(lines) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "MomentBank":
        """Read a bank that `save` wrote.

        Raises:
            InvalidTree: The file is damaged, cut short or of another format; the message names the line.
            OSError: The file cannot be read.
        """
        data = Path(path).read_bytes()
        bank = None
        try:
            header, *lines = data.decode().splitlines() or ["{}"]
            wanted = _read_header(header, path)
            bank = cls()
            for line in lines:
                bank.add([_from_json(json.loads(line))])
            if not len(lines) == len(bank) == wanted:
                raise InvalidTree(f"{path}: wanted {wanted} different moments, got {len(bank)} in {len(lines)} lines")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, SnapshotError) as error:
            if isinstance(error, InvalidTree):
                raise
            number = 1 if bank is None else len(bank) + 2
            raise InvalidTree(f"{path}, line {number}: not a moment ({error}): damaged") from error
        return bank


def _weight(moment: Moment, prefer: Preference) -> float:
    chance = (moment.successes + 1) / (moment.tries + 2)
    return {"uncertain": chance * (1 - chance), "hard": 1 - chance, "uniform": 1.0}[prefer]


def _read_header(line: str, path: str | os.PathLike[str]) -> int:
    header = json.loads(line)
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        found = (header.get("format"), header.get("version"))
        raise InvalidTree(f"{path}: wanted {FORMAT!r} of version {VERSION}, got {found}")
    return int(header["moments"])


def _to_json(moment: Moment) -> dict[str, Any]:
    seen = moment.observation
    return {
        "key": moment.key,
        "env": moment.env,
        "rules": moment.rules,
        "seed": moment.seed,
        "depth": moment.depth,
        "visits": moment.visits,
        "tries": moment.tries,
        "successes": moment.successes,
        "observation": seen if isinstance(seen, str) else {"encoded": _text(encode(seen))},
        "snapshot": _text(moment.snapshot.to_bytes()),
    }


def _from_json(data: dict[str, Any]) -> Moment:
    seen, snapshot = data.pop("observation"), Snapshot.from_bytes(_bytes(data.pop("snapshot")))
    return Moment(
        observation=seen if isinstance(seen, str) else decode(_bytes(seen["encoded"]), snapshot.packages),
        snapshot=snapshot,
        **data,
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


class Begun(NamedTuple):
    """How a group went that began at a moment.

    Attributes:
        moment: Where it began.
        tries: Its episodes of plain play; all of its episodes where there is no plain play.
        successes: Those of them that solved the task.
    """

    moment: Moment
    tries: int
    successes: int

    @classmethod
    def of(cls, moment: Moment, group: Group) -> "Begun":
        """Return how a group went."""
        ended = [trajectory for trajectory in group.trajectories if trajectory.finished]
        counted = [trajectory for trajectory in ended if trajectory.selected_by == "naive"] or ended
        return cls(moment, len(counted), sum(trajectory.success for trajectory in counted))


@runtime_checkable
class Starts(Protocol):
    """Where groups begin; a class of yours with these methods is chosen by ``package.module:Name``.

    Attributes:
        bank: The moments to draw from.
    """

    bank: MomentBank

    def keep(self, trees: Sequence[Tree], begun: Sequence[Begun]) -> None:
        """Learn from how groups went that began at moments, and keep the moments of an update's trees."""

    def draw(self, rng: np.random.Generator) -> Moment:
        """Return the moment at which a group is to begin, from a bank that is not empty."""

    def numbers(self) -> dict[str, Any]:
        """Return everything that is remembered in addition to the bank, as JSON's own types."""

    def recall(self, numbers: Mapping[str, Any]) -> None:
        """Restore what `numbers` returned; the bank is restored already."""


class States:
    """States from which some paths of a tree succeeded and others failed, drawn by the variance of their outcome."""

    def __init__(self) -> None:
        self.bank = MomentBank()

    def keep(self, trees: Sequence[Tree], begun: Sequence[Begun]) -> None:
        """Keep the moments of some trees; those of a group that began at a moment count into it by themselves."""
        for tree in trees:
            self.bank.add(harvest_moments(tree))

    def draw(self, rng: np.random.Generator) -> Moment:
        """Return a moment by ``p (1 - p)``, see `MomentBank.sample`."""
        return self.bank.sample(rng)[0]

    def numbers(self) -> dict[str, Any]:
        """Return an empty dictionary, because the bank is all."""
        return {}

    def recall(self, numbers: Mapping[str, Any]) -> None:
        """Do nothing, because the bank is all."""


# Classes by the words that configurations have for them.
NAMES = {"states": f"{__name__}:States"}


def choose_starts(text: str) -> Starts:
    """Return the starts that a text such as ``"package.module:Name(number=3)"`` names, with an empty bank.

    Args:
        text: One of `NAMES`, or ``package.module:Name``, with its numbers.

    Raises:
        ConfigError: There are no such starts, or they cannot have these numbers.
    """
    call = parse_call(text, what="kind of moments")
    if ":" not in call.name and call.name not in NAMES:
        raise no_such("kind of moments", call.name, list(NAMES))
    written = str(call._replace(name=NAMES.get(call.name, call.name)))
    make: Callable[[], Any] = choose(written, home=__name__, what="kind of moments", takes=0, trial=lambda made: made())
    starts = make()
    if not isinstance(starts, Starts):
        raise ConfigError(
            f"{text} makes a {type(starts).__name__}: wanted a class with the methods of {__name__}:Starts"
        )
    return starts
