"""Play: episodes of task instances, with a search before every turn or without, and their means.

Episodes run on dice that no search has seen, unless it was clairvoyant: only their success is called success.
"""

import json
import shutil
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.intervals import Interval, pooled_mean, share_of, wilson
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.trajectory import Group, Trajectory, success_rate, trajectory_to
from tsr_gym.agents.strategies import naive
from tsr_gym.codec import digest
from tsr_gym.errors import TsrGymError
from tsr_gym.files import cache_home, first_use
from tsr_gym.seeds import derive_seed
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import Noise, snapshot
from tsr_gym.state_env import episode_of
from tsr_gym.tree import Budget, Expand, Policy, Rater, Strategy, Tree
from tsr_gym.version import __version__
from tsr_gym.wrappers.grow import play_out


@dataclass(frozen=True, slots=True)
class PlayedEpisodes:
    """Successes of the episodes of some instances, and their cost.

    Attributes:
        successes: `[I, S]` as tuples, I instances and S seeds: whether the task was solved.
        spent: What everything cost, searches included.
    """

    successes: tuple[tuple[bool, ...], ...]
    spent: Budget

    @property
    def num_episodes(self) -> int:
        """The number of episodes."""
        return sum(map(len, self.successes))

    @property
    def success(self) -> Interval:
        """Share of episodes solved, with its interval over instances (`share_of`)."""
        return share_of([sum(row) for row in self.successes], [len(row) for row in self.successes])

    def gain_over(self, other: "PlayedEpisodes") -> Interval:
        """Return the difference in success to other play of the same instances, instance by instance."""
        pairs = zip(self.successes, other.successes, strict=True)
        gains = [fmean(mine) - fmean(theirs) for mine, theirs in pairs]
        estimate = pooled_mean(gains, range(len(gains)))
        assert estimate is not None
        return estimate


@dataclass(frozen=True, slots=True)
class Examined:
    """Instances that were played once each.

    Attributes:
        groups: The episode of each instance, one group each.
        forms: Key that instances equal up to symmetry share; None for an instance without one.
    """

    groups: tuple[Group, ...]
    forms: tuple[bytes | None, ...]

    def __add__(self, other: "Examined") -> "Examined":
        """Return these instances and then others."""
        return Examined(self.groups + other.groups, self.forms + other.forms)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Means over the episodes of a policy.

    Attributes:
        success: Share of instances solved.
        interval: 95 % Wilson interval of `success`, over distinct instances: those that are equal up to symmetry count
            as one, because they carry the information of one.
        total_reward: Mean return.
        turns: Mean turns.
        response_length: Mean tokens per episode.
        valid: Share of turns that had the wanted form.
        instances: The number of instances.
        distinct: How many of them are different up to symmetry.
        won: Of each instance, ``1`` where it was solved and ``0`` where not.
        twins: Number of each instance that equals an earlier one up to symmetry, with the number of the first such one.
    """

    success: float
    interval: tuple[float, float]
    total_reward: float
    turns: float
    response_length: float
    valid: float
    instances: int
    distinct: int
    won: str
    twins: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars for results on the same instances; None where the environment has no oracle.

    Attributes:
        random: Success of uniformly random actions.
        optimal: Success of the best possible policy.
    """

    random: float | None
    optimal: float | None


def held_out(number: int) -> list[int]:
    """Return the seeds of the first held-out instances: the same for every run, so that runs can be compared."""
    return [derive_seed("held-out", index) for index in range(number)]


def play(
    pool: EnvPool,
    policy: Policy,
    strategy: Strategy | None,
    *,
    tasks: Sequence[int],
    seeds: Sequence[int],
    noise: Noise = "fresh",
    batch: int = 256,
    watch: Callable[[int], None] = lambda done: None,
) -> PlayedEpisodes:
    """Play every instance once per seed, on the same dice for every strategy.

    Args:
        pool: Environments.
        policy: Who plays.
        strategy: Searches before every turn, None for the policy alone.
        tasks: Seeds of the instances.
        seeds: Each gives other samples and dice.
        noise: The imagined dice; ``"same"`` lets a search see the episode's own.
        batch: Episodes that are played side by side.
        watch: Called with the number of episodes that were played.
    """
    starts = [(task, derive_seed(seed, "played", task)) for task in tasks for seed in seeds]
    won: list[bool] = []
    spent = Budget()
    # The policy alone also decides by a tree, so that its episodes have the dice of those with a search.
    for ends in _episodes(pool, policy, strategy or _one_candidate, starts, noise=noise, rater=None, batch=batch):
        won += [tree.nodes[end].solved for tree, end in ends]
        spent = sum((tree.spent for tree, _ in ends), spent)
        watch(len(won))
    rows = [tuple(won[start : start + len(seeds)]) for start in range(0, len(won), len(seeds))]
    return PlayedEpisodes(tuple(rows), spent)


def evaluate(
    pool: EnvPool,
    policy: Policy,
    *,
    tasks: Sequence[int],
    seed: int = 0,
    strategy: Strategy | None = None,
    noise: Noise = "fresh",
    rater: Rater | None = None,
    batch: int = 512,
) -> Evaluation:
    """Play every instance once and return the means over the episodes; see `examine`."""
    examined = examine(pool, policy, tasks=tasks, seed=seed, strategy=strategy, noise=noise, rater=rater, batch=batch)
    return summarise_examined(examined)


def examine(
    pool: EnvPool,
    policy: Policy,
    *,
    tasks: Sequence[int],
    seed: int = 0,
    strategy: Strategy | None = None,
    noise: Noise = "fresh",
    rater: Rater | None = None,
    batch: int = 512,
) -> Examined:
    """Play every instance once and return the episodes, each of which is what it would be alone.

    Args:
        pool: Environments of the held-out split.
        policy: Who plays.
        tasks: Seeds of the instances.
        seed: Of the policy's samples and the dice, which do not depend on the instances' seeds.
        strategy: None plays without search; otherwise every turn is searched on imagined dice, then really played.
        noise: The imagined dice; ``"same"`` lets a search see the episode's own.
        rater: Scores what a search grows in place of the environment's own score.
        batch: Instances that are played side by side.
    """
    starts = [(task, derive_seed(seed, "evaluation", task)) for task in tasks]
    batches = _episodes(pool, policy, strategy, starts, noise=noise, rater=rater, batch=batch)
    played, forms = [], []
    for tree, end in (episode for ends in batches for episode in ends):
        played.append(trajectory_to(tree, end, selected_by="naive"))
        forms.append(pool.base.form(episode_of(tree.nodes[tree.ROOT].snapshot).state))
    groups = tuple(Group(task, (episode,)) for task, episode in zip(tasks, played, strict=True))
    return Examined(groups, tuple(forms))


def summarise_examined(examined: Examined) -> Evaluation:
    """Return the means over the episodes of some instances."""
    return summarise([episode for group in examined.groups for episode in group.trajectories], examined.forms)


def _episodes(
    pool: EnvPool,
    policy: Policy,
    strategy: Strategy | None,
    starts: Sequence[tuple[int, int]],
    *,
    noise: Noise,
    rater: Rater | None,
    batch: int,
) -> Iterator[list[tuple[Tree, int]]]:
    """Yield the tree of every episode and the node at which it ended, batch by batch.

    Without a strategy an episode is a single rollout, on the dice of its tree, at half the steps: nothing was chosen,
    so they are as good as the episode's own, but they are other dice. `starts` are instance and seed of every episode.
    """
    for first in range(0, len(starts), batch):
        part = starts[first : first + batch]
        envs, seeds = pool.set([task for task, _ in part]), [seed for _, seed in part]
        # Nothing is selected without a strategy, so the dice of the tree are as good as the episode's own.
        if strategy is None:
            yield [(tree, tree.leaves()[0]) for tree in search(envs, policy, naive, seeds=seeds)]
            continue
        # The dice of the played episode get a seed that the search does not derive its own from.
        for env, seed in zip(envs, seeds, strict=True):
            env.begin(seed, dice=derive_seed(seed, "dice"))
        play_out(envs, policy, strategy, noise=noise, rater=rater)
        yield [(env.tree, env.tree.played[-1]) for env in envs]


def _one_candidate(tree: Tree) -> Iterator[list[Expand]]:
    """Ask for a single candidate, which is then played: the policy alone."""
    yield [Expand(tree.root)]


def summarise(played: Sequence[Trajectory], forms: Sequence[bytes | None] = ()) -> Evaluation:
    """Return the means over some episodes.

    Args:
        played: The episodes.
        forms: What the instance of each shares with those that are equal to it up to symmetry, None for nothing; none
            where all count by themselves.
    """
    turns = [turn for trajectory in played for turn in trajectory.turns]
    first: dict[bytes, int] = {}
    for number, form in enumerate(forms):
        if form is not None:
            first.setdefault(form, number)
    twins = [(number, first[form]) for number, form in enumerate(forms) if form is not None and first[form] != number]
    # Twins raise the number of episodes without adding information, so they must not narrow the interval.
    distinct = len(played) - len(twins)
    return Evaluation(
        success=success_rate(played),
        interval=wilson(success_rate(played) * distinct, distinct),
        total_reward=_mean([trajectory.total_reward for trajectory in played]),
        turns=_mean([len(trajectory.turns) for trajectory in played]),
        response_length=_mean([trajectory.num_tokens for trajectory in played]),
        valid=_mean([turn.is_valid for turn in turns]),
        instances=len(played),
        distinct=distinct,
        won="".join("1" if trajectory.success else "0" for trajectory in played),
        twins=tuple(twins),
    )


def bars(pool: EnvPool, *, tasks: Sequence[int]) -> Bars:
    """Return the exact bars of some instances, from the environment's oracle; equal instances are computed once."""
    firsts = _firsts(_drawn(pool, tasks))
    of_first = {}
    for place in dict.fromkeys(firsts):
        base: Any = pool.set([tasks[place]])[0].unwrapped
        of_first[place] = base.success_bars(base.state)
        if of_first[place] is None:
            return Bars(None, None)
    pairs = [of_first[first] for first in firsts]
    if not pairs:
        return Bars(None, None)
    return Bars(_mean([pair[0] for pair in pairs]), _mean([pair[1] for pair in pairs]))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


FILE = "held_out.json"


class HeldOut:
    """The first held-out instances of a setting, with their bars.

    Args:
        pool: Environments of the held-out split.
        number: How many instances.
    """

    def __init__(self, pool: EnvPool, number: int) -> None:
        self.pool = pool
        self.tasks = held_out(number)

    @property
    def bars(self) -> Bars:
        """Random and optimal success on the instances; afterwards their starts are known and not drawn again."""
        return self._stored.bars

    @property
    def starts(self) -> list[Snapshot]:
        """The start of each instance; afterwards they are not drawn again."""
        return self._stored.starts

    @property
    def distinct(self) -> list[int]:
        """The places of the instances to play: of those with equal first states the first one."""
        return [place for place, first in enumerate(self._stored.firsts) if place == first]

    @property
    def distinct_tasks(self) -> list[int]:
        """The seeds of the instances to play."""
        return [self.tasks[place] for place in self.distinct]

    def spread(self, played: Examined) -> Examined:
        """Return the episodes of all instances, where each has that of the distinct instance that it equals.

        Another episode of an equal instance would cost as much and add little: of 512 rooms of 10 to 16 moves, 359 are
        distinct. Rooms that are equal up to symmetry (176) are all played, because a model reads them as different
        texts, and the forms have weights from 1 to 29: one view of each would raise the variance.

        Args:
            played: The episodes of `distinct`, in their order.
        """
        places = {place: number for number, place in enumerate(self.distinct)}
        numbers = [places[first] for first in self._stored.firsts]
        groups = (replace(played.groups[number], task=task) for task, number in zip(self.tasks, numbers, strict=True))
        return Examined(tuple(groups), tuple(played.forms[number] for number in numbers))

    @cached_property
    def _stored(self) -> "_Stored":
        folder = _folder(self.pool, self.tasks)
        if folder is not None and folder.exists():
            stored = _read(folder)
            # One instance is drawn anyway, because data files that the environment reads may have changed.
            if stored is not None and stored.starts[:1] == _drawn(self.pool, self.tasks[:1]):
                self.pool.keep(dict(zip(self.tasks, stored.starts, strict=True)))
                return stored
            shutil.rmtree(folder, ignore_errors=True)
        starts = _drawn(self.pool, self.tasks)
        self.pool.keep(dict(zip(self.tasks, starts, strict=True)))
        stored = _Stored(bars(self.pool, tasks=self.tasks), starts, _firsts(starts))
        # Without an oracle nothing shows whether the environment's data are still the same, so nothing is kept.
        if folder is not None and stored.bars.optimal is not None:
            _write(folder, stored)
        return stored


class _Stored(NamedTuple):
    """Held-out instances: bars, starts, and the place of the first instance that begins in the same state as each."""

    bars: Bars
    starts: list[Snapshot]
    firsts: list[int]


def _firsts(starts: Sequence[Snapshot]) -> list[int]:
    first: dict[str, int] = {}
    return [first.setdefault(digest(episode_of(start).state), place) for place, start in enumerate(starts)]


def _drawn(pool: EnvPool, tasks: Sequence[int]) -> list[Snapshot]:
    return [snapshot(env) for env in pool.set(tasks)]


def _folder(pool: EnvPool, tasks: list[int]) -> Path | None:
    """Return the folder for the instances of a pool; None where its settings cannot be written as JSON."""
    base: Any = pool.base
    # Everything that the instances and bars depend on: the version, the environment's code with its times of change,
    # its settings, and the seeds of the instances.
    made_of = [__version__, type(base).__qualname__, _code_of(type(base).__module__), pool.made_with, tasks]
    try:
        text = json.dumps(made_of, sort_keys=True)
    except TypeError:
        return None
    return cache_home() / "held-out" / blake2b(text.encode(), digest_size=16).hexdigest()


def _code_of(module: str) -> list[tuple[str, int, int]]:
    """Return the files of a module's package, with their sizes and times of change."""
    package = sys.modules.get(module.partition(".")[0])
    file = None if package is None else package.__file__
    if file is None:
        return []
    own = Path(file)
    files = sorted(own.parent.rglob("*.py")) if own.name == "__init__.py" else [own]
    stats = [(path, path.stat()) for path in files]
    return [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats]


def _read(folder: Path) -> _Stored | None:
    """Return the content of a folder; None where it is damaged."""
    try:
        # The digest finds files that were cut short or edited; JSON alone would accept some of them.
        digest, text = (folder / FILE).read_text().split("\n")
        if digest != _digest(text):
            raise ValueError("the text does not match its digest")
        kept = json.loads(text)
        starts = [Snapshot.from_bytes(b64decode(start)) for start in kept["starts"]]
        return _Stored(Bars(**kept["bars"]), starts, kept["firsts"])
    except (OSError, ValueError, TypeError, LookupError, TsrGymError):
        return None


def _write(folder: Path, stored: _Stored) -> None:
    starts = [b64encode(start.to_bytes()).decode() for start in stored.starts]
    text = json.dumps({"bars": asdict(stored.bars), "starts": starts, "firsts": stored.firsts})
    # If the disk is full or not writable, the next run computes this again.
    with suppress(OSError, TsrGymError):
        first_use(folder, FILE, lambda new: _write_into(new / FILE, f"{_digest(text)}\n{text}"))


def _write_into(file: Path, text: str) -> None:
    file.write_text(text)


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
