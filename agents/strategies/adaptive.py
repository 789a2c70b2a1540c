"""Adaptive sampling: rollouts go where the outcome is uncertain, and none where it is not."""

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from tsr_gym.agents.strategies.order import harvested, ranked
from tsr_gym.agents.strategies.play_on import play_on
from tsr_gym.ranges import check_counts, check_range
from tsr_gym.tree import Tree, Wishes

Outcome = Literal["success", "return"]


@harvested("episodes")
def adaptive(
    tree: Tree,
    *,
    min_rollouts: int = 4,
    max_rollouts: int = 16,
    outcome: Outcome = "success",
    trust: float = 0.5,
    parallel: int = 4,
) -> Wishes:
    """Play a few episodes; where they differ, play on from the nodes whose outcome is least certain.

    A group in which all episodes come to the same teaches nothing: its uncertainty, the standard deviation of the
    outcomes (TSR, arXiv 2602.11767, Eq. 10), is 0. So it gets no more than `min_rollouts`, and what it did not take is
    missing from `Tree.spent`. All other groups take `max_rollouts` in all.

    Each further rollout begins at the node, the root or one within an episode, where the expected outcome is known
    least well: the one with the largest squared error of its estimate,

        ``sigma(v)**2 / n(v)``,  ``sigma(v)**2 = E[x**2] - E[x]**2``

    where n counts the continuations that were begun at v, and x is the outcome of one. In the long run every node gets
    continuations in proportion to its variance, which knows the means of all equally well (Antos, Grover and
    Szepesvari, Theoretical Computer Science 2010). Few samples are a poor estimate of a variance: where Carpentier et
    al. (arXiv 1507.04523) add a confidence bound, a node here has its parent's expectations as `trust` continuations
    more:

        ``E(v) = (sum of E(c) over the n children of v + trust E(parent)) / (n + trust)``

    where a child has what it comes to itself, before its parent's is added, and an end its outcome. So the doubt about
    the nodes of an episode fades with their depth. At the root, which has no parent, sigma is Eq. 10 until something
    branches. A handful of rollouts is spread nearly evenly, because two or three outcomes do not show a variance. Ties
    are broken by the tree's seed. Nothing is chosen: all leaves are a group.

    Args:
        tree: What has grown.
        min_rollouts: Episodes from the root to begin with; a single episode has no variance, so 1 never continues.
        max_rollouts: Episodes and continuations in all.
        outcome: What an episode comes to: whether it ended with ``info["success"]``, or its return. Where actions cost
            something, returns differ in groups that all fail.
        trust: Continuations that the parent's expectations are worth; with less, nodes count as known after fewer.
        parallel: Continuations per round; more ask the policy less often, on less knowledge.
    """
    check_counts(min_rollouts=min_rollouts, parallel=parallel)
    check_counts(least=min_rollouts, max_rollouts=max_rollouts)
    check_range(least=0, trust=trust)
    if outcome not in ("success", "return"):
        raise ValueError(f"wanted outcome of 'success' or 'return', got {outcome!r}")
    outcomes = _Outcomes(tree, outcome)
    starts = [tree.root] * min_rollouts
    left = max_rollouts
    while starts:
        outcomes.add((yield from play_on(tree, starts)))
        left -= len(starts)
        starts = outcomes.least_known(min(parallel, left), trust) if outcomes.differ else []
    return None


# The expectations of an outcome and of its square.
_Moments = tuple[float, float]


class _Outcomes:
    """The outcomes of a search's episodes, and how well the expected outcome is known at every inner node."""

    def __init__(self, tree: Tree, outcome: Outcome) -> None:
        self.tree = tree
        self.outcome = outcome
        self._ends: dict[int, _Moments] = {}
        # Without values, for their order: parents before children.
        self._inner: dict[int, None] = {}

    @property
    def differ(self) -> bool:
        """Whether not all outcomes are the same."""
        outcomes = [outcome for outcome, _ in self._ends.values()]
        return max(outcomes) - min(outcomes) > 1e-9

    def add(self, ends: Sequence[int]) -> None:
        """Add the outcomes of some continuations."""
        for end in ends:
            came = self.tree.total(end, "reward") if self.outcome == "return" else float(self.tree.nodes[end].solved)
            self._ends[end] = came, came * came
            self._inner.update(dict.fromkeys(self.tree.path(end)[:-1]))

    def least_known(self, number: int, trust: float) -> list[int]:
        """Return the nodes at which to continue; a node can be in the list more than once."""
        variances, begun = self._variances(trust)
        # Every choice counts at once as a continuation that was begun, so parallel ones spread over several nodes.
        nodes = []
        for _ in range(number):
            # Rounded, because sums of the same outcomes in another order differ in the last digits, and a tie would be
            # missed.
            error = {node: round(variance / begun[node], 9) for node, variance in variances.items()}
            most = max(error.values())
            node = ranked(self.tree, [node for node in error if error[node] == most], error.__getitem__)[0]
            begun[node] += 1
            nodes.append(node)
        return nodes

    def _variances(self, trust: float) -> tuple[dict[int, float], dict[int, int]]:
        """Return the variance of the outcome at every node, and how many continuations were begun there."""
        # First bottom up: the moments of a node are the means over its children that have any. Then top down: each node
        # is shrunk towards its parent, because few samples are a poor estimate of a variance.
        own, begun = dict(self._ends), {}
        for node in reversed(self._inner):
            below = [own[child] for child in self.tree.children(node) if child in own]
            begun[node] = len(below)
            own[node] = fmean([first for first, _ in below]), fmean([second for _, second in below])
        # The root has no parent to be shrunk towards. `_inner` has it first, and every other node after its parent,
        # whose shrunk moments are then known.
        helped = {self.tree.root: own[self.tree.root]}
        for node in list(self._inner)[1:]:
            parent = self.tree.nodes[node].parent
            assert parent is not None
            above, mean = helped[parent], own[node]
            share = trust / (begun[node] + trust)
            helped[node] = mean[0] + share * (above[0] - mean[0]), mean[1] + share * (above[1] - mean[1])
        # E[x**2] - E[x]**2 of equal outcomes can come out slightly below 0 by rounding.
        return {node: max(0.0, second - first * first) for node, (first, second) in helped.items()}, begun
