"""Graph credit: a move is worth how near it comes to a success, in one graph of all that was tried for a task.

States s, t of a task and what was tried in them, each move a cost of 1; w = 1/2:

    s -a-> t -a-> success                 t: a has w = 1/2, b 0; best 1/2, so that their shares are 1 and 0
    s -b-> s                              s: a has w^2 = 1/4, b w^3 = 1/8, c is unknown; shares 1, 1/2 and none
    s -c-> u, and nobody went on          mean of s 3/4, so that a has +1/4 and b -1/4, before the deviation
    t -b-> the end, a failure
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.comparison import Scale, compare
from tsr_gym.agents.learning.advantages.mechanism.estimate import estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Baseline, Contrast
from tsr_gym.agents.learning.advantages.mechanism.turn_table import sum_by, table_of
from tsr_gym.agents.learning.batch import Batch, Edges
from tsr_gym.agents.learning.estimators import estimator

# Values that rise by a smaller share in a sweep are what they will be.
PRECISION = 1e-9


@estimator(needs={"naive": {"baseline": "naive"}})
def graph(
    batch: Batch,
    *,
    w: float = 0.1,
    step_weight: float = 1.0,
    cost: Literal["turn", "action"] = "turn",
    scale: Scale = "std",
    eps: float = 1e-6,
    baseline: Baseline = "all",
) -> Tensor:
    """Return GraphGPO's advantages `[B, T]`: of whole episodes, and of moves by the way that is left (2605.26684).

    On all tokens of a turn ``A_episode + step_weight A_move``. A_episode is ``(R - mean) / (std + eps)`` over the
    group's episodes. A_move compares all moves that were tried in a state, in all trajectories and trees of the task
    (`Batch.edges`): candidates that a search rejected tell what a turn is worth, without being learned from.

    With d(s) the shortest way from s to a success, a move from s to s' of cost c earns ``w^(d(s') + c)``. Where a move
    led to several states, that is the value iteration ``Q(s, a) = mean over s' of w^c V(s')``, ``V(s) = max_a Q(s,
    a)``, 1 at a success; on what was tried, so that a move tried once is taken for certain. A_move is ``(q - mean) /
    (std + eps)`` of the shares ``q = Q(s, a) / V(s)`` over all tries in s. The paper compares Q itself, which is the
    same but that eps outweighs any Q far from the goal.

    A move counts as a failure, Q = 0, where some play went on to an end and none to a success (in the paper, as if the
    success were one move farther than from anywhere). One from which nobody played to an end, such as a candidate that
    a search left, is unknown: it is compared with nothing, and its turn has A_episode alone.

    Args:
        batch: Trajectories with states and edges.
        w: What a value loses per cost, 0.1 in the published recipe; 1 asks only whether a success was reached.
        step_weight: Weight of A_move, 1 in the paper.
        cost: Whether each turn costs 1, as in the paper, or each of its actions (1 for none).
        scale: Deviation of a sample, or nothing.
        eps: Added to the deviation.
        baseline: What A_episode's mean is fitted on: all, the naive ones, or searched and naive ones apart.

    Raises:
        ValueError: w is out of range, or the batch has no edges.
    """
    if not 0 < w <= 1:
        raise ValueError(f"wanted 0 < w <= 1, got {w}")
    if batch.edges is None:
        raise ValueError("a graph is made of edges: wanted a batch with edges, as `collate` makes it, got None")
    episodes = estimate(batch, Contrast(scale=scale, eps=eps, baseline=baseline))
    found = edge_values(batch.edges, w=w, cost=cost)
    if not found.known.any():
        return episodes
    table, move = table_of(batch), batch.edges.move[found.known]
    state, of_move = batch.edges.state[found.known], found.value[found.known]
    best = found.best[state]
    shares = torch.where(best > 0, of_move / best, 0.0)
    all_of_them = torch.ones_like(shares, dtype=torch.bool)
    compared = compare(shares, state, all_of_them, torch.ones_like(shares), centre="mean", scale=scale, ddof=1, eps=eps)
    # One more, for turns whose move is unknown: they look it up at -1.
    advantages = shares.new_zeros(max(_size(move), _size(table.move)) + 1)
    advantages[move] = torch.where(compared.alone, 0.0, compared.advantage)
    return episodes + step_weight * table.spread(advantages.to(episodes.device)[table.move])


class EdgeValues(NamedTuple):
    """What moves and states are worth.

    Attributes:
        value: `[M]`, Q of each edge's move.
        known: `[M]` bool, False where nobody played on to an end; the value is then 0.
        best: `[S]`, V of each state.
    """

    value: Tensor
    known: Tensor
    best: Tensor


def edge_values(edges: Edges, *, w: float, cost: Literal["turn", "action"] = "turn") -> EdgeValues:
    """Return the values of edges by value iteration on what was tried, as `graph` has it, in float64."""
    known = _known(edges)
    price = edges.actions.clamp(min=1) if cost == "action" else torch.ones_like(edges.actions)
    discount = torch.tensor(w, dtype=torch.float64) ** price * known
    moves, states = _size(edges.move), max(_size(edges.state), _size(edges.after))
    tries = sum_by(known.double(), edges.move, moves).clamp(min=1)
    # From below, values only rise, and without chance they are exact after as many sweeps as the longest way has moves.
    best = torch.zeros(states + 1, dtype=torch.float64)
    while True:
        ahead = torch.where(edges.solved, 1.0, best[edges.after])
        value = (sum_by(discount * ahead, edges.move, moves) / tries)[edges.move]
        better = torch.zeros_like(best).scatter_reduce(0, edges.state, value, "amax")
        if bool((better - best <= PRECISION * better).all()):
            return EdgeValues(value * known, known, better[:-1])
        best = better


def _known(edges: Edges) -> Tensor:
    """Return a mask of the edges after which some play went on to an end, `[M]`."""
    # One more than there are states, which stays False, for those that are unknown: they look it up at -1.
    seen = torch.zeros(max(_size(edges.state), _size(edges.after)) + 1, dtype=torch.bool)
    while True:
        known = edges.ended | seen[edges.after]
        before = int(seen.sum())
        seen[edges.state[known]] = True
        if int(seen.sum()) == before:
            return known


def _size(numbers: Tensor) -> int:
    return int(numbers.max()) + 1 if len(numbers) else 0
