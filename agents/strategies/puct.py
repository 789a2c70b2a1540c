"""PUCT: Monte Carlo tree search with the policy's own probabilities as priors, over candidates that are sampled."""

from collections.abc import Callable, Generator

from tsr_gym.agents.strategies.order import Merge
from tsr_gym.agents.strategies.play_on import play_on
from tsr_gym.agents.strategies.visits import Backup, Prior, Rules, Visits
from tsr_gym.tree import Expand, Tree, Wishes


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
    samples nothing, and counts all the same. Otherwise it goes on to the candidate with the largest

        ``Q(s,a) + C(s) P(s,a) sqrt(N(s)) / (1 + N(s,a))``,  ``C(s) = c + log((1 + N(s) + 19652) / 19652)``

    (AlphaZero, Silver et al., Science 2018; with Q scaled to [0, 1] by the least and largest return seen so far, as in
    MuZero, arXiv 1911.08265, Eq. 2 and 5). Growing by ``k N**alpha`` is progressive widening (Coulom, 2007; Couetoux
    et al., LION 2011). The return of a simulation is what `value` says of the path to where it ended, rewards on the
    way included. A dead end returns the least so far, and is walked to only where there is nothing else. Of equally
    visited candidates the one with the higher Q is taken, then ties are broken by the tree's seed.

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
        merge: Of nodes in one state only the first has candidates; simulations that reach another go on below it
            (Childs et al., CIG 2008). A move is always searched below itself.
    """
    if simulations < 1 or parallel < 1 or (moves is not None and moves < 1):
        raise ValueError(f"wanted simulations, parallel and moves >= 1, got {simulations}, {parallel} and {moves}")
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
        first = [leaf for leaf in leaves if visits.first(leaf) == leaf]
        ends = dict(zip(first, (yield from play_on(visits.tree, first, rollout_turns)), strict=True))
        for path, leaf in zip(growing, leaves, strict=True):
            visits.back_up([*path, leaf], ends.get(leaf, leaf))
        left -= len(growing)
