"""GRPO, and the mechanism of all estimators that compare: trajectories, turns or nodes of a tree.

**The formula** (DeepSeekMath, arXiv 2402.03300). G trajectories of one task form a group, with returns R_1 ... R_G:

    A_i = (R_i - mean(R)) / (std(R) + eps)        on every sampled token of trajectory i

Returns 1 and 3 have the mean 2 and the deviation sqrt(2), so that A is -0.71 and +0.71.

**The lines that compute it** are those of `compare`, on the values and groups of I items at once:

    mean      = sum_by_group(values) / sum_by_group(1)
    deviation = sqrt(sum_by_group((values - mean)^2) / (sum_by_group(1) - 1))
    advantage = (values - mean) / (deviation + eps)
    advantage = 0 where all values of the group are equal

**Trees** change which items there are, which of them form a group, and what the value of an item is. Each estimator is
one or two `Contrast`s of `estimate`: `grpo` compares the returns of the trajectories of a prompt, `tree_grpo` also
those within a tree, `tree_backup` the values of sibling nodes. Example: trajectories a and b share their first turn,
node 1. Trajectory a continues with node 2 and returns 4, b with node 3 and returns 0. Whole trajectories are compared
on the left, sibling nodes on the right, where a node's value is the mean of its children's:

    entry  trajectory  node  parent | key     unit  value  mean  advantage | key     unit  value  mean  advantage
    0      a           1     root   | prompt  a     4      2     +2        | root    1     2      -     0 (singleton)
    1      a           2     1      | prompt  a     4      2     +2        | node 1  2     4      2     +2
    2      b           1     root   | prompt  b     0      2     -2        | root    1     2      -     0 (singleton)
    3      b           3     1      | prompt  b     0      2     -2        | node 1  3     0      2     -2

An entry is a turn of a trajectory (see `TurnTable`). Entries 0 and 1 are one unit on the left, entries 0 and 2 are one
unit on the right. A unit counts once in the mean, and all of its entries have its advantage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.turn_table import (
    Backup,
    TurnTable,
    Worth,
    back_up,
    check_nodes,
    first_entries,
    nodes_of,
    rewards_of,
    sum_by,
    table_of,
)
from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.learning.estimators import estimator
from tsr_gym.agents.lessons.filters import ROUNDING

Key = Literal["prompt", "tree", "parent", "siblings", "ancestor", "depth", "turn", "state"]
Unit = Literal["trajectory", "step", "token", "node"]
Centre = Literal["mean", "loo", "none"]
Scale = Literal["std", "none"]
Baseline = Literal["all", "naive", "per_kind"]
Combine = Literal["sum", "mean", "size"]
Assign = Literal["path", "node"]
Prefix = Literal["duplicate", "once", "policy"] | float


@estimator(needs={"naive": {"baseline": "naive"}})
def grpo(batch: Batch, *, eps: float = 1e-6, ddof: int = 1, baseline: Baseline = "all") -> Tensor:
    """Return the advantages `[B, T]` of each trajectory's return within its group, on its sampled tokens (TSR Eq. 12).

    ``(R_i - mean(R)) / (std(R) + eps)`` with the standard deviation of a sample (divisor G - 1), as in published code.
    Singleton groups, and groups whose returns are all equal, have advantage 0.

    Args:
        batch: Trajectories with group numbers.
        eps: Added to the deviation; 1e-6 in verl and RAGEN, 1e-4 in TRL.
        ddof: 1 for the deviation of a sample, 0 for that of a population.
        baseline: Trajectories that the mean is taken over, see `Contrast`.
    """
    return estimate(batch, Contrast(scale="std", eps=eps, ddof=ddof, baseline=baseline))


@estimator(needs={"naive": {"baseline": "naive"}})
def dr_grpo(batch: Batch, *, baseline: Baseline = "all") -> Tensor:
    """Return the advantages ``R_i - mean(R)``, `[B, T]`, on the sampled tokens of each trajectory (arXiv 2503.20783).

    GRPO's deviation is left out, because it gives groups that are nearly decided more weight. The paper's other half, a
    loss that is not divided by each answer's length, is `Objective.aggregation`. Singleton groups have advantage 0.

    Args:
        batch: Trajectories with group numbers.
        baseline: Trajectories that the mean is taken over, see `Contrast`.
    """
    return estimate(batch, Contrast(baseline=baseline))


@estimator(needs={"naive": {"baseline": "naive"}})
def rloo(batch: Batch, *, baseline: Baseline = "all") -> Tensor:
    """Return the advantages ``R_i - mean of the other R_j``, `[B, T]`: G / (G - 1) times `dr_grpo` (arXiv 2402.14740).

    Singleton groups have advantage 0; in verl they keep their return.

    Args:
        batch: Trajectories with group numbers.
        baseline: Trajectories that the mean of the others is taken over, see `Contrast`.
    """
    return estimate(batch, Contrast(centre="loo", baseline=baseline))


@estimator(needs={"naive": {"baseline": "naive"}})
def reinforce_pp(
    batch: Batch, *, subtract: Literal["group", "nothing"] = "group", gamma: float = 1.0, baseline: Baseline = "all"
) -> Tensor:
    """Return REINFORCE++'s advantages `[B, T]`, whitened over the batch instead of within groups (arXiv 2501.03262).

    ``"group"`` (REINFORCE++-baseline): ``R_i - mean(R)`` of its group. ``"nothing"`` (REINFORCE++): the discounted sum
    of rewards from each turn on. Both are then whitened over all sampled tokens, with the variance of a sample and 1e-8
    in the root, as in verl. Singleton groups have 0 before whitening, where verl keeps their return; if all tokens are
    equal, all have 0.

    Args:
        batch: Trajectories with group numbers.
        subtract: The baseline that is subtracted before whitening.
        gamma: Discount of ``"nothing"``, per turn; verl's is per token.
        baseline: Trajectories that the group's mean is taken over, see `Contrast`.
    """
    if subtract == "group":
        return estimate(batch, Contrast(baseline=baseline), whiten=True)
    to_go = Backup(rewards="turn", kind="return_to_go", gamma=gamma)
    return estimate(batch, Contrast(unit="step", centre="none", of=to_go), whiten=True)


class Compared(NamedTuple):
    """The outcome of comparing I items.

    Attributes:
        advantage: `[I]`; undefined where `alone`.
        alone: `[I]` bool, True where no other item is in the baseline.
        flat: `[I]` bool, True where the item equals all items of the baseline.
        size: `[I]` int64, number of items in the baseline.
    """

    advantage: Tensor
    alone: Tensor
    flat: Tensor
    size: Tensor


def compare(
    values: Tensor,
    keys: Tensor,
    fitted: Tensor,
    weights: Tensor,
    *,
    centre: Centre,
    scale: Scale,
    ddof: int,
    eps: float,
) -> Compared:
    """Return ``(value - centre) / (deviation + eps)`` of every item within its group of equal keys.

    This is the only place where a mean or a deviation is taken. With f = 1 for items of the baseline, w the weights,
    and sums over the group:

        n = sum w f        mean = sum w f v / n        loo_i = sum_{j != i} w_j f_j v_j / (n - w_i f_i)
        deviation = sqrt(sum w (v - v_mean)^2 / (sum w - ddof))        v_mean = sum w v / sum w

    The deviation is that of the whole group, also where the baseline is smaller: it is a unit of measurement. The
    deviation of a few nearly equal items would have no lower bound. The range r of n items of weight 1 bounds this one
    from below, ``deviation >= r / sqrt(2 (n - 1))``, so that no advantage exceeds ``sqrt(2 (n - 1))``.

    Items that are equal up to rounding have advantage exactly 0: rounding errors must not be scaled up.

    Args:
        values: `[I]`.
        keys: `[I]` int64, any numbers.
        fitted: `[I]` bool, the items of the baseline.
        weights: `[I]`, how often each item counts.
        centre: The mean, the mean of the others (leave one out), or 0.
        scale: The deviation or 1.
        ddof: Subtracted from the count in the variance.
        eps: Added to the deviation.
    """
    names, group = torch.unique(keys, return_inverse=True)
    advantage = values - _centres(values, group, len(names), weights * fitted, centre)
    if scale == "std":
        advantage = advantage / (_deviations(values, group, len(names), weights, ddof) + eps)
    flat = _equal_to_fitted(values, group, len(names), fitted)
    # Without a centre and a scale a value stays as it is, and nothing was rounded.
    if centre != "none" or scale != "none":
        advantage = torch.where(flat, 0.0, advantage)
    # An item is alone where the baseline has no member but itself: one for a fitted item, none for another.
    members = sum_by(fitted.long(), group, len(names))[group]
    return Compared(advantage, members == fitted.long(), flat, members)


def _centres(values: Tensor, group: Tensor, size: int, counted: Tensor, centre: Centre) -> Tensor:
    """Return the number that is subtracted from each item, `[I]`; 0 where the group has no baseline."""
    if centre == "none":
        return torch.zeros_like(values)
    total, sums = sum_by(counted, group, size)[group], sum_by(counted * values, group, size)[group]
    if centre == "loo":
        # An item outside of the baseline has counted = 0, and nothing is left out for it.
        total, sums = total - counted, sums - counted * values
    return sums / total.clamp(min=1)


def _deviations(values: Tensor, group: Tensor, size: int, weights: Tensor, ddof: int) -> Tensor:
    """Return the standard deviation of each item's group, `[I]`."""
    total = sum_by(weights, group, size)
    mean = sum_by(weights * values, group, size) / total.clamp(min=1)
    squares = sum_by(weights * (values - mean[group]) ** 2, group, size)
    # A singleton has squares 0 and would be divided by 0.
    return (squares / (total - ddof).clamp(min=1)).sqrt()[group]


def _equal_to_fitted(values: Tensor, group: Tensor, size: int, fitted: Tensor) -> Tensor:
    """Return a mask of the items that equal all items of their group's baseline, `[I]`."""
    top = torch.full((size,), -torch.inf, dtype=values.dtype, device=values.device)
    top = top.scatter_reduce(0, group[fitted], values[fitted], "amax")[group]
    bottom = torch.full((size,), torch.inf, dtype=values.dtype, device=values.device)
    bottom = bottom.scatter_reduce(0, group[fitted], values[fitted], "amin")[group]
    return are_equal_bounds(torch.maximum(values, top), torch.minimum(values, bottom))


def are_equal_bounds(top: Tensor, bottom: Tensor) -> Tensor:
    """Return whether all numbers between two bounds are equal by the rule of `are_equal`, as a bool tensor.

    A number that is not finite equals nothing, so that it stays visible in the advantages.
    """
    gap = top - bottom
    return gap.isfinite() & (gap <= ROUNDING * torch.maximum(top.abs(), bottom.abs()).clamp(min=1))


@dataclass(frozen=True, slots=True)
class Contrast:
    """A comparison of units that have the same key.

    Attributes:
        key: The property that the units of one group share. ``"prompt"``: the task. ``"tree"``: the tree.
            ``"parent"``: the node in which the turn was taken. ``"siblings"``: the same, with the roots of all trees of
            a prompt as one node, because their first turns are taken in the same state. ``"ancestor"``: the node at
            `depth` of the path. ``"depth"``: the tree and the number of the turn. ``"turn"``: the prompt and the number
            of the turn. ``"state"``: the state in which the turn was taken.
        unit: The unit that counts once: a trajectory, a step (a turn of a trajectory), a token of it, or a node.
        centre: The number that is subtracted: the mean, the mean of the others (leave one out), or 0.
        scale: The divisor: the standard deviation of the group, or 1.
        ddof: 1 for the deviation of a sample, 0 for that of a population.
        eps: Added to the deviation.
        alone: The advantage of a singleton, whose baseline has no other unit: 0; its value (``"raw"``, as in published
            GRPO code); or the advantage of the turn before it (``"inherit"``), because a turn without alternatives
            carries out the last choice.
        baseline: Units that the mean is taken over: all; those of plain play (``"naive"``; all where a group has none);
            or, for searched and for naive trajectories apart, their own kind (``"per_kind"``). The deviation is that of
            the whole group, and with ``"per_kind"`` that of each kind, see `compare`.
        ragged: With the key ``"turn"``, the value of turn k in trajectories that ended before it: none, 0, or their
            last value.
        on: Turns that are compared and have an advantage: all, all but the last of each trajectory, or those below the
            ancestor.
        depth: With the key ``"ancestor"``, the number of turns before that node; 0 for the root.
        counted: Units that count where several contrasts are averaged: those that have the key, those that are no
            singletons, or those that differ from some other.
        weight: Factor of the advantage.
        of: The values that are compared.
        before: A contrast that the rewards are put through before they are backed up, such as leave one out; None for
            none.

    Raises:
        ValueError: The choices contradict each other.
    """

    key: Key = "prompt"
    unit: Unit = "trajectory"
    centre: Centre = "mean"
    scale: Scale = "none"
    ddof: int = 1
    eps: float = 1e-6
    alone: Literal["zero", "raw", "inherit"] = "zero"
    baseline: Baseline = "all"
    ragged: Literal["present", "zero", "last"] = "present"
    on: Literal["all", "not_last", "below"] = "all"
    depth: int = 0
    counted: Literal["present", "compared", "varied"] = "compared"
    weight: float = 1.0
    of: Backup = field(default_factory=Backup)
    before: "Contrast | None" = None

    def __post_init__(self) -> None:
        if self.unit == "trajectory" and (self.of.kind != "none" or self.of.rewards == "turn"):
            raise ValueError("a trajectory has one return or outcome: wanted unit 'step' for values of turns")
        if self.unit == "trajectory" and self.key not in ("prompt", "tree", "ancestor"):
            raise ValueError(f"wanted unit 'step', 'token' or 'node' with the key {self.key!r}, which differs by turn")
        if self.unit == "node" and self.of.kind in ("none", "return_to_go"):
            raise ValueError(
                "a node has a value only after a backup: wanted 'leaf_mean', 'child_mean' or 'child_softmax', got "
                f"{self.of.kind!r}"
            )
        if self.ragged != "present" and (self.key, self.unit) != ("turn", "step"):
            raise ValueError(
                f"ragged compares turns: wanted the key 'turn' and the unit 'step', got {self.key!r} and {self.unit!r}"
            )


class Contrasted(NamedTuple):
    """The outcome of one contrast.

    Attributes:
        advantage: `[E]`, 0 where the entry is not compared.
        counted: `[E]` bool, True where it counts in a mean of several contrasts.
        size: `[E]` int64, number of units in its baseline.
    """

    advantage: Tensor
    counted: Tensor
    size: Tensor


class _Items(NamedTuple):
    """The I units that are compared: first those of entries, then the stand-ins for missing turns."""

    value: Tensor
    key: Tensor
    searched: Tensor
    weight: Tensor


def contrast_entries(table: TurnTable, contrast: Contrast) -> Contrasted:
    """Return the advantage of every entry under one contrast: its rewards backed up, then compared."""
    start = rewards_of(table, contrast.of)
    if contrast.before is not None:
        start = Worth(_compared(table, start, contrast.before).advantage, start.known)
    return _compared(table, back_up(table, start, contrast.of), contrast)


def _compared(table: TurnTable, worth: Worth, contrast: Contrast) -> Contrasted:
    keys, has_key = _keys(table, contrast)
    member = has_key & worth.known & _is_on(table, contrast)
    entry = member.nonzero()[:, 0]
    advantage, alone = torch.zeros_like(worth.values), torch.zeros_like(member)
    counted, size = torch.zeros_like(member), torch.zeros_like(table.turn)
    if len(entry) == 0:
        return Contrasted(advantage, counted, size)
    unit, first = _units(table, entry, contrast)
    items = _Items(worth.values[first], keys[first], table.searched[first], _weights(table, first, contrast))
    if contrast.ragged != "present":
        items = _with_missing(table, worth.values, member, items, contrast)
    if contrast.baseline == "per_kind":
        # Twice the key, plus one for searched units, makes two groups of each.
        items = items._replace(key=2 * items.key + items.searched)
    compared = compare(
        items.value,
        items.key,
        _fitted(items, contrast),
        items.weight,
        centre=contrast.centre,
        scale=contrast.scale,
        ddof=contrast.ddof,
        eps=contrast.eps,
    )
    # From units back to entries: every entry reads the outcome of its unit.
    advantage[entry], size[entry] = compared.advantage[unit], compared.size[unit]
    # A value from which nothing is subtracted and that nothing divides needs no others.
    alone[entry] = compared.alone[unit] & ((contrast.centre, contrast.scale) != ("none", "none"))
    counted[entry] = ~compared.flat[unit] if contrast.counted == "varied" else True
    return _with_singletons(table, worth, Contrasted(advantage, counted, size), alone, contrast)


def _with_singletons(
    table: TurnTable, worth: Worth, contrasted: Contrasted, alone: Tensor, contrast: Contrast
) -> Contrasted:
    """Return the outcome of a comparison with the advantages of singletons filled in."""
    advantage, counted, size = contrasted
    if contrast.alone == "raw":
        advantage = torch.where(alone, worth.values, advantage)
    elif contrast.alone == "inherit":
        # Entries of a trajectory stand in the order of its turns, so the running maximum over the numbers of the
        # entries that are no singletons is the nearest such entry before; a first turn has none and keeps 0.
        numbers = torch.arange(len(alone), device=alone.device)
        source = torch.where(alone & ~table.is_first, -1, numbers).cummax(0).values
        advantage = torch.where(alone, torch.where(alone[source], 0.0, advantage[source]), advantage)
    else:
        advantage = torch.where(alone, 0.0, advantage)
        counted = counted & (~alone | (contrast.counted == "present"))
    return Contrasted(contrast.weight * advantage, counted, size)


def _keys(table: TurnTable, contrast: Contrast) -> tuple[Tensor, Tensor]:
    """Return every entry's key, `[E]` int64, and whether it has one, `[E]` bool."""
    if contrast.key == "state":
        return table.state, table.state >= 0
    if contrast.key == "ancestor" and contrast.depth > 0:
        # The node that the trajectory reached after so many turns; -1 where it had ended before.
        there = table.turn == contrast.depth - 1
        ancestor = torch.full((table.num_trajectories,), -1, device=table.node.device)
        ancestor[table.trajectory[there]] = table.node[there]
        return ancestor[table.trajectory], ancestor[table.trajectory] >= 0
    turns = int(table.turn.max()) + 1
    keys = {
        "prompt": table.group,
        "ancestor": table.group,
        "tree": table.tree,
        "parent": table.parent,
        # First turns of all trees of a prompt are taken in one state; numbers from num_nodes on belong to no node.
        "siblings": torch.where(table.is_first, table.num_nodes + table.group, table.parent),
        "depth": table.tree * turns + table.turn,
        "turn": table.group * turns + table.turn,
    }
    return keys[contrast.key], torch.ones_like(table.is_last)


def _is_on(table: TurnTable, contrast: Contrast) -> Tensor:
    """Return a mask of the entries that a contrast compares, `[E]`, see `Contrast.on`."""
    if contrast.on == "not_last":
        return ~table.is_last
    if contrast.on == "below":
        return table.turn >= contrast.depth
    return torch.ones_like(table.is_last)


def _units(table: TurnTable, entry: Tensor, contrast: Contrast) -> tuple[Tensor, Tensor]:
    """Return the unit of each of some entries, and the first entry of every unit."""
    if contrast.unit in ("step", "token"):
        return torch.arange(len(entry), device=entry.device), entry
    owner = table.node if contrast.unit == "node" else table.trajectory
    names, unit = torch.unique(owner[entry], return_inverse=True)
    first = torch.full((len(names),), len(owner), device=entry.device).scatter_reduce(0, unit, entry, "amin")
    return unit, first


def _weights(table: TurnTable, first: Tensor, contrast: Contrast) -> Tensor:
    # All tokens of a turn have one value, so that the turn stands for them, with their number as its weight.
    weights = torch.ones_like(table.reward[first])
    return weights * table.tokens[first] if contrast.unit == "token" else weights


def _fitted(items: _Items, contrast: Contrast) -> Tensor:
    """Return a mask of the items of the baseline, `[I]`; all items of a group without naive ones."""
    if contrast.baseline != "naive":
        return torch.ones_like(items.searched)
    _, group = torch.unique(items.key, return_inverse=True)
    naive = sum_by((~items.searched).long(), group, int(group.max()) + 1)[group]
    return ~items.searched | (naive == 0)


def _with_missing(table: TurnTable, values: Tensor, member: Tensor, items: _Items, contrast: Contrast) -> _Items:
    """Return the items and, after them, a stand-in for every turn that a trajectory lacks and its group has.

    Trajectories of a group differ in length. Comparing turn k only among those that reached it makes the baseline of
    late turns that of the few longest trajectories; the short ones, such as an answer that was right at once, drop out.
    A stand-in keeps every trajectory in the baseline of every turn. It belongs to no entry, so that it moves the mean
    and the deviation but has no advantage. Stand-ins come last because `_compared` reads the outcomes of real units by
    their place.

    Of trajectories with values (3), (1, 5) and (2, 4, 6) the second turn is compared as x, 5, 4 and the third as x, y,
    6, with x = y = 0 for ``"zero"``, and x = 3, y = 5 for ``"last"``.
    """
    first, turns = table.is_first, int(table.turn.max()) + 1
    group, searched = table.group[first], table.searched[first]
    # `[N, turns]`: which turns each trajectory has, and their values.
    there = torch.zeros((len(group), turns), dtype=torch.bool, device=values.device)
    there[table.trajectory[member], table.turn[member]] = True
    filled = torch.zeros(there.shape, dtype=values.dtype, device=values.device)
    filled[table.trajectory[member], table.turn[member]] = values[member]
    numbers = torch.arange(turns, device=values.device).expand(there.shape)
    if contrast.ragged == "last":
        # The running maximum over the numbers of turns that are there is the last turn up to this one.
        filled = filled.gather(1, torch.where(there, numbers, 0).cummax(dim=1).values)
    # No stand-ins beyond the longest trajectory of a group: there is nothing to compare.
    longest = torch.full((int(group.max()) + 1,), -1, device=values.device)
    longest = longest.scatter_reduce(0, table.group[member], table.turn[member], "amax")
    row, turn = (~there & (numbers <= longest[group][:, None])).nonzero(as_tuple=True)
    return _Items(
        torch.cat([items.value, filled[row, turn]]),
        torch.cat([items.key, group[row] * turns + turn]),
        torch.cat([items.searched, searched[row]]),
        torch.cat([items.weight, torch.ones_like(filled[row, turn])]),
    )


def estimate(
    batch: Batch,
    *contrasts: Contrast,
    combine: Combine = "sum",
    assign: Assign = "path",
    prefix: Prefix = "duplicate",
    whiten: bool = False,
) -> Tensor:
    """Return the advantages `[B, T]` of some contrasts combined, 0 where nothing was sampled.

    Args:
        batch: Trajectories in groups and trees.
        contrasts: The comparisons.
        combine: How the advantages A_c of a turn under several contrasts become one. ``"sum"``: ``sum_c A_c``.
            ``"mean"``: their mean over contrasts in which it counts. ``"size"``: that mean weighted by the number of
            units in the baseline.
        assign: ``"path"``: a turn that several trajectories share has in each the advantage of that trajectory.
            ``"node"``: it has the mean of these in all of them.
        prefix: How often a turn counts that D trajectories share, and which therefore stands in the batch D times.
            ``"duplicate"``: D times, so that it weighs more the more leaves the search grew below it. A number p:
            every copy is multiplied by ``D^-p``, so that 1 counts every node once, which in a full tree gives early
            turns too little weight. ``"policy"``: as often as the policy takes it (`policy_weights`). ``"once"``: the
            sum of the copies' advantages stands on the first and 0 on the others; the gradient before any clip is that
            of ``"duplicate"``.
        whiten: Whether to shift and scale the advantages of all sampled tokens to mean 0 and variance 1.

    Raises:
        ValueError: Nodes are compared, and two trees of a group have the same number.
    """
    table = table_of(batch)
    if assign == "node" or prefix != "duplicate" or any(_looks_at_nodes(contrast) for contrast in contrasts):
        check_nodes(table)
    advantages = _combined([contrast_entries(table, contrast) for contrast in contrasts], combine)
    if assign == "node":
        sums = sum_by(advantages, table.node, table.num_nodes)
        advantages = sums[table.node] / table.sharers
    advantages = _with_prefix(table, advantages, prefix)
    return table.spread(_whitened(table, advantages) if whiten else advantages)


def _looks_at_nodes(contrast: Contrast) -> bool:
    return contrast.unit == "node" or contrast.key in ("parent", "siblings", "ancestor")


def _combined(parts: Sequence[Contrasted], combine: Combine) -> Tensor:
    """Return ``sum_c A_c``, or ``sum_c w_c A_c / sum_c w_c`` with w = 1 or the size where it counts, `[E]`."""
    total = torch.stack([part.advantage * part.counted for part in parts])
    if combine == "sum":
        return total.sum(dim=0)
    # A contrast in which an entry does not count is left out of its mean; where none counts, the advantage is 0.
    weights = torch.stack([part.counted * (part.size if combine == "size" else 1) for part in parts]).to(total.dtype)
    return (total * weights).sum(dim=0) / weights.sum(dim=0).clamp(min=1)


def _with_prefix(table: TurnTable, advantages: Tensor, prefix: Prefix) -> Tensor:
    """Return the advantages `[E]` with shared turns weighted, see `estimate`."""
    if prefix == "duplicate":
        return advantages
    if prefix == "policy":
        return advantages * policy_weights(table)
    if prefix == "once":
        # Copies of a turn have the same log-probability, so that its gradient depends on their sum alone.
        sums, first = sum_by(advantages, table.node, table.num_nodes), first_entries(table)
        once = torch.zeros_like(advantages)
        once[first] = sums[table.node[first]]
        return once
    return advantages * table.sharers.to(advantages.dtype) ** -prefix


def policy_weights(table: TurnTable) -> Tensor:
    """Return factors that make a node count as often as the policy takes it, `[E]`; 1 in a forest of chains.

    A search takes some branches further and leaves others, so that the copies of a turn in the batch follow the search.
    Here each state s has a share, that of all episodes that pass through it, which its m sampled children divide
    evenly. Only the children that the search continued, c of them, have descendants, and these stand for all:

        w(n) = share(s) / m        share(n) = share(s) / c, 0 where n was left        share(root of a prompt) = 1

    For a prompt of G leaves, D(n) of them below n, each of the node's D(n) copies has the factor ``G w(n) / D(n)``.
    """
    nodes, (roots, size) = nodes_of(table), (table.num_nodes, table.num_nodes + int(table.group.max()) + 1)
    # All first turns of a prompt are taken in one state, in all of its trees.
    parent = torch.where(table.is_first, roots + table.group, table.parent)[nodes.entry]
    children = torch.bincount(parent, minlength=size).to(table.reward.dtype)
    ended = torch.bincount(table.node[table.is_last & table.finished], minlength=size) > 0
    continued = (ended | (children > 0))[nodes.node].to(children.dtype)
    num_continued = sum_by(continued, parent, size).clamp(min=1)
    share, weight = torch.ones_like(children), torch.zeros_like(children)
    for depth in range(int(table.turn.max()) + 1):
        level = nodes.turn == depth
        node, above = nodes.node[level], parent[level]
        weight[node] = share[above] / children[above]
        share[node] = continued[level] * share[above] / num_continued[above]
    # G leaves of weight 1 / G each are a chain's w; so the factor is 1 there, and advantages keep their size.
    leaves = torch.bincount(table.group[table.is_last])
    return leaves[table.group] * weight[table.node] / table.sharers


def _whitened(table: TurnTable, advantages: Tensor, eps: float = 1e-8) -> Tensor:
    """Return ``(A - mean) / sqrt(var + eps)`` over tokens, with the variance of a sample; all 0 where all are equal."""
    tokens = advantages[table.entry]
    if are_equal_bounds(tokens.max(), tokens.min()):
        return torch.zeros_like(advantages)
    return (advantages - tokens.mean()) / (tokens.var() + eps).sqrt()
