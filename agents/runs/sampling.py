"""Sampler: collects the trajectories of each update, in rounds of searches that respect the run's limits of tokens.

Some groups of an update may begin at states of the run's own earlier trees (`RunStarts`).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.collect import Collected, Collector, side_by_side
from tsr_gym.agents.episodes.start_states import Begun, Starts, StartState, StartStateBank, choose_starts
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.lessons.filters import Filtered
from tsr_gym.agents.processes import ALONE, Processes
from tsr_gym.agents.runs.prices import Prices
from tsr_gym.agents.runs.progress import Progress, Tokens, counted, total_of, update_end
from tsr_gym.agents.runs.workers.remote_collector import RemoteCollector
from tsr_gym.errors import ConfigError, InvalidTree, shown
from tsr_gym.files import write_atomically
from tsr_gym.keywords import bind
from tsr_gym.seeds import derive_seed

# Maximum number of states; the oldest are dropped first, because an older policy reached them.
MOST = 512
FILE = "start_states.jsonl"
NUMBERS = "start_states.json"


class StartStates:
    """The start states of a run: kept from its trees, and drawn for some groups of every update.

    Draws derive from the run's seed and the number of the group, so a resumed run repeats them.

    Args:
        groups: Groups of each update that begin at such a state; 0 keeps nothing.
        seed: Seed of the run.
        source: Which states to keep, see `choose_starts`.
    """

    def __init__(self, groups: int, *, seed: int, source: str = "states") -> None:
        self.groups = groups
        self.seed = seed
        self.source: Starts = bind(source, choose_starts).bound()
        self._begun: dict[int, StartState] = {}

    @property
    def bank(self) -> StartStateBank:
        """The states to draw from."""
        return self.source.bank

    def choose(self, first: int, count: int) -> list[StartState | None]:
        """Return the start state of each of some groups, None for the start of an instance.

        Of every `count` groups in a row, `groups` begin at a state. They are spread evenly, because a limit of tokens
        cuts off the last groups of an update, and their share must not depend on that.

        Args:
            first: Number of the first group in the run's sequence.
            count: Number of groups.
        """
        starts: list[StartState | None] = [None] * count
        for place, number in enumerate(range(first, first + count)):
            # The number of starts among the first n groups is n * groups / count, rounded down; this group has one if
            # the number rises with it.
            if len(self.bank) and (number + 1) * self.groups // count > number * self.groups // count:
                rng = np.random.default_rng(derive_seed(self.seed, "practice", number))
                drawn = self.source.draw(rng)
                if not isinstance(drawn, StartState):
                    raise ConfigError(f"{type(self.source).__name__}.draw: wanted a StartState, got {shown(drawn)}")
                starts[place] = self._begun[number] = drawn
        return starts

    def keep(self, collected: Collected, first: int = 0) -> None:
        """Keep states of an update's trees, and update those at which its groups began.

        Args:
            collected: Groups and trees of the update.
            first: Number of its first group.
        """
        if not self.groups:
            return
        groups = enumerate(collected.groups, start=first)
        begun = [Begun.of(self._begun[number], group) for number, group in groups if number in self._begun]
        self._begun = {}
        self.source.keep([tree for grown in collected.trees for tree in grown], begun)
        self.bank.keep_last(MOST)

    def metrics(self) -> dict[str, Any]:
        """Return the number of states as ``start_states``, and the numbers of their source as ``start_states_*``."""
        if not self.groups:
            return {}
        numbers = {name: value for name, value in self.source.numbers().items() if isinstance(value, int | float)}
        return {"start_states": len(self.bank), **{f"start_states_{name}": value for name, value in numbers.items()}}

    def save(self, folder: Path) -> None:
        """Write the states into a checkpoint's folder.

        Raises:
            OSError: The disk is full or not writable.
        """
        if self.groups:
            self.bank.save(folder / FILE)
            write_atomically(folder / NUMBERS, json.dumps(self.source.numbers()).encode())

    def load(self, folder: Path) -> None:
        """Read what `save` wrote.

        Raises:
            InvalidTree: A file is damaged.
        """
        if not (self.groups and (folder / FILE).exists()):
            return
        self.source.bank = StartStateBank.load(folder / FILE)
        try:
            self.source.recall(json.loads((folder / NUMBERS).read_bytes()) if (folder / NUMBERS).exists() else {})
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidTree(f"{folder / NUMBERS}: not the numbers of start states ({error}): damaged") from error


# Factors of a group's expected tokens that must be left for each group that is searched together with others. Groups
# vary in length: with 4, a run hardly passes the limit; with 1, it passes it by some groups.
_HARD, _SOFT = 4, 1


class Limit(NamedTuple):
    """A number of tokens after which no group is begun.

    Attributes:
        tokens: The number, counted from the beginning of the run.
        margin: Groups are searched together only if `margin` times their expected tokens are left.
    """

    tokens: int
    margin: int = _HARD


def groups_at_once(limits: Sequence[Limit], *, spent: float, groups: int, least: int = 1, dearer: float = 1.0) -> int:
    """Return how many groups to search together before the limits, at least `least`.

    The tokens of a group are expected to be the mean over all groups of the run, times `dearer`. A group's search
    cannot be stopped in the middle, so groups that are searched together may pass a limit together. Close to it they
    are therefore searched one after the other, and the limit is passed by less than the tokens of `least` groups.

    Args:
        limits: At least one.
        spent: Tokens that the run has counted.
        groups: Groups that took these tokens; 0 if there is no mean yet.
        least: Minimum number of groups, one for every process.
        dearer: The cost of a group as a multiple of the mean over the run so far.

    >>> groups_at_once([Limit(5000)], spent=1000, groups=10)
    10
    """
    # Nothing is known of the cost of a group yet, so that the first round is as small as it can be.
    if not spent:
        return least
    return max(least, min(int((limit.tokens - spent) * groups // (limit.margin * spent * dearer)) for limit in limits))


def search_within(
    limits: Sequence[Limit],
    search: Callable[[int, Sequence[StartState | None]], Collected],
    first: int,
    starts: Sequence[StartState | None],
    *,
    count: Callable[[Tokens], float],
    spent: float,
    least: int = 1,
    dearer: float = 1.0,
) -> Collected:
    """Search an instance from each start, and stop after the first limit that is reached.

    Args:
        limits: At least one.
        search: Searches some instances, given the number of the first one and their starts.
        first: Number of the first instance, which is also the number of instances before it.
        starts: Start of each instance; at least one.
        count: Returns how many tokens count.
        spent: Tokens that the run has counted.
        least: Minimum number of instances at a time, one for every process.
        dearer: See `groups_at_once`.
    """
    parts: list[Collected] = []
    # At least one round, also where a limit is reached already: an update needs something to learn from.
    while not parts or (starts and spent < min(limit.tokens for limit in limits)):
        together = groups_at_once(limits, spent=spent, groups=first, least=least, dearer=dearer)
        parts.append(search(first, starts[:together]))
        starts, first = starts[together:], first + len(parts[-1].groups)
        spent += count(parts[-1].spent)
    return reduce(add, parts)


class Sampler:
    """Collect the trajectories of each update.

    The processes of a run share the instances of a round, and all of them get the trajectories of all instances.

    Args:
        config: Settings of the run.
        collector: Searches instances, in this process or in workers of Ray.
        learner: Learner whose model is sampled from; it holds the whole model meanwhile.
        select: Returns the groups to learn from, which `RunConfig.update_trajectories` counts.
        token_targets: Counted tokens after each update, for a run that matches another; None for other runs.
        processes: Processes that train together.
    """

    def __init__(
        self,
        config: TrainConfig,
        collector: Collector | RemoteCollector,
        learner: Learner,
        select: Callable[[Collected], Filtered],
        token_targets: Sequence[int] | None,
        processes: Processes = ALONE,
    ) -> None:
        self.config = config
        self.collector = collector
        self.learner = learner
        self.select = select
        self.token_targets = token_targets
        self.total_tokens = total_of(config.run, token_targets)
        self.processes = processes
        self.starts = StartStates(
            config.search.start_states, seed=config.run.seed, source=config.search.start_states_from
        )
        self.prices = Prices(config.search)
        # The search for the next update, if it has begun: the version of its weights, and a function that waits for it.
        self._ahead: tuple[int, Callable[[], Collected]] | None = None

    def is_used_up(self, tokens: float) -> bool:
        """Return whether the run ends at this number of counted tokens."""
        return self.total_tokens is not None and tokens >= self.total_tokens

    def collect(self, progress: Progress) -> tuple[int, Collected]:
        """Return the version of the weights that were sampled from, and what the update learns from.

        With `RunConfig.overlap` the search for the next update begins here, by the weights as they are before this
        update. It never begins before a checkpoint: a resumed run has only the weights of the checkpoint and could not
        repeat that search.

        Args:
            progress: Progress of the run before the update.
        """
        run, update = self.config.run, progress.update
        with self.learner.sampling():
            if self._ahead is None:
                version, collected = update, self._collect(progress)
            else:
                (version, wait), self._ahead = self._ahead, None
                collected = side_by_side(self.processes.each(wait))
            if run.overlap and update + 1 < run.updates and (update + 1) % run.checkpoint_every:
                # `each` gathers what functions return, and a function that waits cannot be sent to other processes.
                begun: list[Callable[[], Collected]] = []
                after = replace(progress, update=update + 1, tasks=progress.tasks + len(collected.groups))
                self.processes.each(lambda: begun.append(self._begin(after)))
                self._ahead = update, begun[0]
        return version, collected

    def _begin(self, progress: Progress) -> Callable[[], Collected]:
        """Begin this process's share of the search for an update, and return a function that waits for it."""
        own = self.processes.share(self.config.search.groups)
        return self.collector.begin(progress.tasks + own.start, len(own), chance=self.prices.chance())

    def _collect(self, progress: Progress) -> Collected:
        """Search rounds of instances until the update has enough."""
        run, first = self.config.run, progress.tasks
        before = counted(progress, run)
        collected = self._round(progress, first, before)
        while not self._has_enough(collected, progress.update, spent := before + counted(collected.spent, run)):
            collected += self._round(progress, first + len(collected.groups), spent)
        return collected

    def _has_enough(self, collected: Collected, update: int, spent: float) -> bool:
        """Return whether an update needs no more instances, given the tokens that the run has counted."""
        if self.is_used_up(spent):
            return True
        enough = self.config.run.update_trajectories
        # A filter may drop whole groups, so only the selected ones count.
        if enough is not None:
            return sum(len(group.trajectories) for group in self.select(collected)) >= enough
        end = update_end(self.config.run, self.token_targets, update)
        return end is None or spent >= end

    def _round(self, progress: Progress, first: int, spent: float) -> Collected:
        """Search `SearchConfig.groups` instances from number `first` on, or fewer if a limit of tokens comes before."""
        run = self.config.run
        starts = self.starts.choose(first, self.config.search.groups)
        search = partial(self._search, chance=self.prices.chance())
        end = update_end(run, self.token_targets, progress.update)
        both = ((self.total_tokens, _HARD), (end, _SOFT))
        # The end of the run is a hard limit: other runs are compared at the same total. The end of an update is a soft
        # one: the next update has as many tokens less.
        limits = [Limit(tokens, margin) for tokens, margin in both if tokens is not None]
        if not limits:
            return search(first, starts)
        count, least = partial(counted, run=run), self.processes.size
        return search_within(
            limits, search, first, starts, count=count, spent=spent, least=least, dearer=self.prices.dearer
        )

    def _search(self, first: int, starts: Sequence[StartState | None], *, chance: float) -> Collected:
        """Search an instance from each start, each process its share, and return the results of all processes."""
        own = self.processes.share(len(starts))
        own_starts = starts[own.start : own.stop]
        return side_by_side(
            self.processes.each(lambda: self.collector.collect(first + own.start, len(own), own_starts, chance=chance))
        )
