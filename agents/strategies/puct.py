"""PUCT: Monte Carlo tree search with the policy's own probabilities as priors, over candidates that are sampled."""

from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field
from math import exp, fsum, inf, log, sqrt
from typing import Literal, NamedTuple

from tsr_gym.agents.strategies.order import Merge, identity, is_dead, ranked, valued
from tsr_gym.agents.strategies.play_on import play_on
from tsr_gym.ranges import check_counts, check_limits, check_range
from tsr_gym.tree import Candidate, Expand, Tree, Wishes

Prior = Literal["sum", "mean", "uniform"]
Backup = Literal["mean", "max"]
# AlphaZero's pb_c_base: a node needs about so many visits before exploration there weighs log 2 more.
C_BASE = 19652


@dataclass(frozen=True, slots=True)
class Rules:
    """The numbers of `puct`, under the same names."""

    c: float
    k: float
    alpha: float
    prior: Prior
    temperature: float
    value: Callable[[Tree, int], float] | None
    backup: Backup
    merge: Merge

    def __post_init__(self) -> None:
        check_range(least=0, c=self.c)
        check_range(above=0, k=self.k, temperature=self.temperature)
        check_range(least=0, most=1, alpha=self.alpha)
        if self.prior not in ("sum", "mean", "uniform") or self.backup not in ("mean", "max"):
            raise ValueError(
                f"wanted prior of 'sum', 'mean' or 'uniform' and backup of 'mean' or 'max', got {self.prior!r} and "
                f"{self.backup!r}"
            )


class Walk(NamedTuple):
    """The nodes that a simulation passes, and whether it samples a candidate at the last."""

    path: list[int]
    grows: bool


@dataclass(slots=True)
class _Seen:
    """Statistics of a node.

    Attributes:
        candidates: Children that the search sampled; rollouts add other children.
        priors: Their probabilities.
        sampling: Candidates that are under way.
        visits: Simulations that came from its parent.
        tries: Simulations that stood in its state, by way of a twin too.
        under_way: Simulations that passed and have no return yet.
        returns: Sum of their returns.
        quality: Q, the estimated worth of the path to the node.
        is_dead: It is a dead end.
    """

    candidates: list[int] = field(default_factory=list)
    priors: list[float] = field(default_factory=list)
    sampling: int = 0
    visits: int = 0
    tries: int = 0
    under_way: int = 0
    returns: float = 0.0
    quality: float = 0.0
    is_dead: bool = False


class Visits:
    """Statistics of all nodes that simulations have seen."""

    def __init__(self, tree: Tree, rules: Rules) -> None:
        self.tree = tree
        self.rules = rules
        # `_first` holds the node of each state that has the candidates, `_rated` the value of each node, which is asked
        # for once. `_low` and `_high` bound all returns so far, and scale Q to [0, 1].
        self._seen: dict[int, _Seen] = {}
        self._first: dict[Hashable, int] = {}
        self._rated: dict[int, float] = {}
        self._low, self._high = inf, -inf

    def enter(self, node: int) -> None:
        """Begin a move at a node, which becomes the first of its state."""
        self._seen.setdefault(node, _Seen())
        self._first[identity(self.tree, node, self.rules.merge)] = node

    def first(self, node: int) -> int:
        """Return the node that has the candidates for a node's state."""
        return self._first.get(identity(self.tree, node, self.rules.merge), node) if self.rules.merge else node

    def walk(self, root: int) -> Walk | None:
        """Return the path of the next simulation; None if it has to wait for one under way."""
        path = [root]
        while self.tree.nodes[path[-1]].is_open:
            here = self.first(path[-1])
            # A twin without candidates hands over to the first node of its state, unless that is on the path: the
            # walk would then be a circle.
            if here != path[-1]:
                if here in path:
                    break
                path.append(here)
            seen = self._seen[here]
            if len(seen.candidates) + seen.sampling < self._allowed(seen):
                return Walk(path, True)
            # All candidates of this node are still being sampled by simulations of the same round: nothing can be
            # selected.
            if not seen.candidates:
                return None
            path.append(self._select(seen))
        return Walk(path, False)

    def await_candidate(self, path: Sequence[int]) -> None:
        """Count a simulation that will grow at the end of its path as under way."""
        self._seen[path[-1]].sampling += 1
        for node in path:
            self._seen[node].under_way += 1

    def add_candidate(self, path: Sequence[int], leaf: int) -> None:
        """Add the candidate that was awaited."""
        parent = self._seen[path[-1]]
        parent.sampling -= 1
        for node in path:
            self._seen[node].under_way -= 1
        parent.candidates.append(leaf)
        # P is a softmax over the candidates that exist, so that a new one changes the priors of all.
        parent.priors = self._priors(parent.candidates)
        self._seen[leaf] = _Seen(is_dead=is_dead(self.tree, leaf))
        self._first.setdefault(identity(self.tree, leaf, self.rules.merge), leaf)

    def back_up(self, path: Sequence[int], end: int) -> None:
        """Add the return of a simulation, which is the value of where it ended, to all nodes that it passed.

        A dead end is worth the least return seen so far, because the rewards on its path cannot be part of a success.
        """
        # Q of a node is the worth of the whole path to it, so siblings differ only by what they add. Under merging a
        # path can jump from a node to its twin, the first node in the same state, which has the candidates. The returns
        # below the twin are of the twin's path: above the jump they are corrected by the difference in worth of the two
        # paths.
        worth = self._shared(end) if end == path[-1] else self._rate(end)
        if is_dead(self.tree, end):
            worth = min(worth, self._low)
        self._low, self._high = min(self._low, worth), max(self._high, worth)
        for place in reversed(range(len(path))):
            node, seen = path[place], self._seen[path[place]]
            if self.rules.backup == "max" and seen.candidates:
                worth = max(map(self.quality, self._living(seen)))
            seen.tries += 1
            seen.returns += worth
            seen.quality = worth if self.rules.backup == "max" else seen.returns / seen.tries
            if place and self.tree.nodes[node].parent != path[place - 1]:
                # The step from `path[place - 1]` to `node` is such a jump.
                worth += self._rate(path[place - 1]) - self._rate(node)
                self._low, self._high = min(self._low, worth), max(self._high, worth)
            else:
                seen.visits += 1

    def most_visited(self, node: int) -> int:
        """Return the candidate at a node that the simulations took most often."""
        living = self._living(self._seen[node])
        most = max(self._seen[child].visits for child in living)
        return ranked(self.tree, [child for child in living if self._seen[child].visits == most], self.quality)[0]

    def end_of_most_visited(self, node: int) -> int:
        """Return the last node of the most visited path below a node."""
        while self._seen[node].candidates:
            node = self.most_visited(node)
        return node

    def quality(self, node: int) -> float:
        """Return Q: the worth of the path to a node, as the simulations estimate it."""
        return self._seen[node].quality

    def _allowed(self, seen: _Seen) -> int:
        return max(1, int(self.rules.k * (seen.tries + seen.under_way) ** self.rules.alpha))

    def _select(self, seen: _Seen) -> int:
        passed = seen.tries + seen.under_way
        explore = (self.rules.c + log((1 + passed + C_BASE) / C_BASE)) * sqrt(passed)
        low, span = self._low, (self._high - self._low) or 1.0
        best, largest = seen.candidates[0], -inf
        for child, prior in zip(seen.candidates, seen.priors, strict=True):
            # Simulations under way count as visits without a return, which makes the others of the round go elsewhere.
            below = self._seen[child]
            bound = (below.quality - low) / span + explore * prior / (1 + below.visits + below.under_way)
            if bound > largest and not below.is_dead:
                best, largest = child, bound
        return best

    def _living(self, seen: _Seen) -> list[int]:
        return [child for child in seen.candidates if not self._seen[child].is_dead] or seen.candidates

    def _shared(self, node: int) -> float:
        """Return the value of a node; that of a twin with what is known below the first of its state."""
        first = self.first(node)
        if first == node or not self._seen[first].tries:
            return self._rate(node)
        return self._rate(node) + self.quality(first) - self._rate(first)

    def _rate(self, node: int) -> float:
        if node not in self._rated:
            value = self.rules.value
            self._rated[node] = self.tree.merit(node) if value is None else valued(value, self.tree, node)
        return self._rated[node]

    def _priors(self, candidates: Sequence[int]) -> list[float]:
        logits = [self._logit(self.tree.nodes[child].candidate) / self.rules.temperature for child in candidates]
        most = max(logits)
        # Where no candidate has a chance, none is preferred.
        weights = [1.0 if most == -inf else exp(logit - most) for logit in logits]
        return [weight / fsum(weights) for weight in weights]

    def _logit(self, candidate: Candidate) -> float:
        if self.rules.prior == "uniform" or not candidate.logprobs:
            return 0.0
        return fsum(candidate.logprobs) / (len(candidate.logprobs) if self.rules.prior == "mean" else 1)


def puct(
    tree: Tree,
    *,
    simulations: int = 32,
    moves: int | None = None,
    c: float = 1.25,
    k: float = 2.0,
    alpha: float = 0.5,
    prior: Prior = "mean",
    temperature: float = 1.0,
    value: Callable[[Tree, int], float] | None = None,
    rollout_turns: int | None = 0,
    backup: Backup = "mean",
    parallel: int = 1,
    merge: Merge = None,
) -> Wishes:
    """Search every move with some simulations, make the most visited one, and choose where the moves lead.

    A simulation walks down from the move's node. Where a node of N simulations has fewer candidates than
    ``max(1, floor(k N**alpha))``, it samples one more there, values it, and ends; one that ends where an episode does
    samples nothing and still counts. Otherwise it continues to the candidate with the largest

        ``Q(s,a) + C(s) P(s,a) sqrt(N(s)) / (1 + N(s,a))``,  ``C(s) = c + log((1 + N(s) + 19652) / 19652)``

    (AlphaZero, Silver et al., Science 2018; with Q scaled to [0, 1] by the least and largest return seen so far, as in
    MuZero, arXiv 1911.08265, Eq. 2 and 5). Growing by ``k N**alpha`` is progressive widening (Coulom, 2007; Couetoux
    et al., LION 2011). A simulation returns the `value` of the path to its end, rewards on the way included; a dead end
    the least so far, and it is walked to only where there is nothing else. Of equally visited candidates the one with
    the higher Q is taken, then ties are broken by the tree's seed.

    Args:
        tree: What has grown.
        simulations: Simulations for each move; what earlier moves learned below it is kept.
        moves: Moves to search, None to the end of the episode. The last of a number goes as far as was searched.
        c: Weight of exploration, AlphaZero's c_init.
        k: Candidates of a node after one simulation.
        alpha: How fast they grow with the simulations; 0 keeps `k` everywhere.
        prior: P is a softmax over a node's candidates of their log-probabilities: the sum over a candidate's tokens,
            the mean, or ``"uniform"``, as for a policy without tokens. Candidates are drawn from the policy already:
            uniform weighs them as it does (Sampled MuZero, arXiv 2104.06303), the others sharpen it.
        temperature: Of that softmax.
        value: What the whole path to a node looks worth, as in `best_first`; None is `Tree.merit`.
        rollout_turns: Turns that the policy plays on from a candidate before `value` is asked, None to the end.
        backup: Q is the mean of the returns, or the largest Q of the candidates below, which trusts luck where it is.
        parallel: Simulations per round; those under way count in N, not in Q (WU-UCT, arXiv 1810.11755).
        merge: Of nodes in one state only the first has candidates (Childs et al., CIG 2008), except the node of a move.
    """
    check_counts(simulations=simulations, parallel=parallel)
    check_limits(moves=moves)
    check_limits(least=0, rollout_turns=rollout_turns)
    visits = Visits(tree, Rules(c, k, alpha, prior, temperature, value, backup, merge))
    here, made = tree.root, 0
    while tree.nodes[here].is_open:
        visits.enter(here)
        yield from _simulate(visits, here, simulations, parallel, rollout_turns)
        made += 1
        if made == moves:
            return [visits.end_of_most_visited(here)]
        here = visits.most_visited(here)
    return [here] if made else ()


def _simulate(
    visits: Visits, root: int, simulations: int, parallel: int, rollout_turns: int | None
) -> Generator[list[Expand], None, None]:
    left = simulations
    while left > 0:
        growing: list[list[int]] = []
        # `walk` finds nothing only where a simulation of this round is under way, so that every round makes progress.
        while len(growing) < min(parallel, left) and (walk := visits.walk(root)) is not None:
            if walk.grows:
                visits.await_candidate(walk.path)
                growing.append(walk.path)
            else:
                visits.back_up(walk.path, walk.path[-1])
                left -= 1
        leaves = yield from play_on(visits.tree, [path[-1] for path in growing], 1)
        for path, leaf in zip(growing, leaves, strict=True):
            visits.add_candidate(path, leaf)
        # A leaf whose state was met before is not played on: `_shared` values it by what is known below that state's
        # first node.
        first = [leaf for leaf in leaves if visits.first(leaf) == leaf]
        ends = dict(zip(first, (yield from play_on(visits.tree, first, rollout_turns)), strict=True))
        for path, leaf in zip(growing, leaves, strict=True):
            visits.back_up([*path, leaf], ends.get(leaf, leaf))
        left -= len(growing)
