"""Filters: selection of the groups, and of their trajectories, that are learned from; torch-free.

Every filter takes groups and returns a list that counts what it left out and why. Groups and trajectories keep their
order.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import ceil, exp, fsum, isfinite
from statistics import stdev
from typing import Literal

from tsr_gym.agents.episodes.trajectory import Group, Trajectory
from tsr_gym.errors import TrainingDiverged
from tsr_gym.ranges import check_counts, check_range

Filter = Callable[[Sequence[Group]], list[Group]]
Credit = Callable[[Group], Group]

# Sums of the same rewards in another order differ in the sixteenth digit, different rewards by much more.
ROUNDING = 1e-9


class Filtered(list[Group]):
    """The groups that were kept.

    Attributes:
        dropped: Number left out by reason. Reasons begin with the unit that is counted, ``group`` or ``trajectory``.
    """

    def __init__(self, groups: Iterable[Group] = (), dropped: Counter[str] | None = None) -> None:
        super().__init__(groups)
        self.dropped: Counter[str] = Counter() if dropped is None else +dropped


def are_equal(numbers: Sequence[float]) -> bool:
    """Return whether finite numbers are equal up to rounding: ``max - min <= 1e-9 max(1, largest size)``.

    The only rule of equality for returns, in filters, credit rules and estimators (there as tensors, see `compare`). It
    separates rounding from differences better than any threshold on a standard deviation. An empty sequence and a
    single number are equal.
    """
    return not numbers or max(numbers) - min(numbers) <= ROUNDING * max(1.0, *map(abs, numbers))


def has_equal_returns(group: Group) -> bool:
    """Return whether all trajectories of a group have the same return, see `are_equal`.

    Raises:
        TrainingDiverged: A return is not finite.
    """
    return are_equal(_returns(group))


def keep_all(groups: Sequence[Group]) -> Filtered:
    """Return all groups."""
    return Filtered(groups)


def keep_varied(groups: Sequence[Group]) -> Filtered:
    """Return the groups whose returns differ; the others have no gradient (DAPO, arXiv 2503.14476)."""
    return _where(groups, lambda group: not has_equal_returns(group), "group_equal_returns")


def keep_uncertain(groups: Sequence[Group], ratio: float = 0.25) -> Filtered:
    """Return the groups whose returns vary most (TSR Eq. 10, StarPO-S), in their order.

    Groups without variation are never kept, because they have no gradient; ties go to the earlier group.

    Args:
        groups: Candidates.
        ratio: Share of the groups to keep, 0.25 in the paper; at least one.
    """
    check_range(above=0, most=1, ratio=ratio)
    # 0.07 * 100 is 7.000000000000001 in floating point, and means 7 groups.
    return keep_top_k(groups, ceil(ratio * len(groups) - 1e-9))


def keep_top_k(groups: Sequence[Group], k: int) -> Filtered:
    """Return the `k` groups whose returns vary most, in their order; ties go to the earlier group.

    Args:
        groups: Candidates; those without variation are never kept.
        k: Largest number of groups to keep.
    """
    check_counts(least=0, k=k)
    varied = keep_varied(groups)
    return _at(varied, _by_spread(varied)[:k], "group_less_uncertain")


def keep_top_p(
    groups: Sequence[Group], p: float = 0.9, *, weights: Literal["linear", "softmax"] = "linear", slack: float = 0.01
) -> Filtered:
    """Return the fewest groups, the most varied first, with a share of all variation (RAGEN-2, arXiv 2604.06268).

    Variation is the standard deviation of a group's returns as a sample (divisor G - 1), as the released code has it.
    Groups without variation are left out first; ties go to the earlier group.

    Args:
        groups: Candidates.
        p: The share, 0.9 in the released code.
        weights: ``"linear"``: until the deviations reach ``p`` times their sum, less the slack; where that is not above
            0, the whole batch hardly varies and nothing is kept. ``"softmax"``: until the softmax of the deviations
            reaches ``p``, so that their scale matters.
        slack: 0.01 in the released code; only for ``"linear"``.
    """
    check_range(above=0, most=1, p=p)
    check_range(least=0, slack=slack)
    varied = keep_varied(groups)
    if not varied:
        return varied
    spreads = [stdev(_returns(group)) for group in varied]
    shares = spreads if weights == "linear" else _softmax(spreads)
    target = p * fsum(spreads) - slack if weights == "linear" else p
    number, reached = 0, 0.0
    order = _by_spread(varied)
    while number < len(order) and reached < target - ROUNDING:
        reached += shares[order[number]]
        number += 1
    return _at(varied, order[:number], "group_beyond_top_p")


def keep_mixed_success(groups: Sequence[Group], ratio: float = 1.0) -> Filtered:
    """Return the most uncertain of those groups in which some trajectories succeeded and some failed.

    Where every trajectory fails, returns still differ by the price of each action. A learner that keeps such groups
    learns to act less, until it does nothing.

    Args:
        groups: Candidates.
        ratio: Share of all groups to keep at most; at least one.
    """
    check_range(above=0, ratio=ratio)
    mixed = _where(groups, lambda group: group.has_mixed_success, _outcome)
    if not mixed:
        return mixed
    # The ratio counts all groups, not only the mixed ones.
    kept = keep_uncertain(mixed, min(1.0, ratio * len(groups) / len(mixed)))
    return Filtered(kept, mixed.dropped + kept.dropped)


def keep_learnable(groups: Sequence[Group], credit: Credit) -> Filtered:
    """Return the groups that pass TSPO's gate (arXiv 2601.22776): failed groups pass by their turns' rewards.

    A group with successes and failures passes unchanged, to be compared by trajectories. A group that only failed is
    rewritten by a credit rule, and passes if its trajectories then differ in the reward of some turn. A group that only
    succeeded, or whose trajectories do not differ, is left out.

    Args:
        groups: Candidates.
        credit: Rewrites the turn rewards of a group, such as `tsr_gym.agents.lessons.credit.first_occurrence`.
    """
    kept, dropped = [], Counter[str]()
    for group in groups:
        if group.has_mixed_success:
            kept.append(group)
        elif group.trajectories and group.trajectories[0].success:
            dropped["group_all_solved"] += 1
        elif _differs_in_a_turn(rewritten := credit(group)):
            kept.append(rewritten)
        else:
            dropped["group_all_failed_alike"] += 1
    return Filtered(kept, dropped)


def keep_concise(
    groups: Sequence[Group], keep: int, *, by: Literal["length", "reward_per_token"] = "length"
) -> Filtered:
    """Return groups cut to their most concise trajectories (GFPO, arXiv 2508.09726); ties go to the earlier one.

    An estimator then gets only the kept trajectories, and normalises over them, as in the paper.

    Args:
        groups: Candidates.
        keep: Trajectories to keep per group.
        by: ``"length"``: the fewest tokens. ``"reward_per_token"``: the largest return per token; for negative
            returns this prefers long failures to short ones.
    """

    def rank(trajectory: Trajectory) -> float:
        if by == "length":
            return trajectory.num_tokens
        return -trajectory.total_reward / max(1, trajectory.num_tokens)

    return _cut(groups, keep, rank, "trajectory_less_concise")


def keep_best(groups: Sequence[Group], keep: int = 1, *, successes_only: bool = False) -> Filtered:
    """Return groups cut to their trajectories of largest return (RAFT, arXiv 2304.06767); ties go to the earlier one.

    The result is for imitation, or for an estimator that accounts for the selection: compared with one another, the
    best of a group show what distinguishes them, not what made them good.

    Args:
        groups: Candidates.
        keep: Trajectories to keep per group.
        successes_only: Whether to leave out failures first, and groups that only failed.
    """
    if not successes_only:
        return _cut(groups, keep, lambda trajectory: -trajectory.total_reward, "trajectory_not_best")
    solved = _where(
        groups, lambda group: any(trajectory.success for trajectory in group.trajectories), "group_all_failed"
    )
    dropped = solved.dropped
    successes = []
    for group in solved:
        successes.append(_with(group, [trajectory for trajectory in group.trajectories if trajectory.success]))
        dropped["trajectory_failed"] += len(group.trajectories) - len(successes[-1].trajectories)
    best = _cut(successes, keep, lambda trajectory: -trajectory.total_reward, "trajectory_not_best")
    return Filtered(best, dropped + best.dropped)


def _returns(group: Group) -> list[float]:
    """Return the returns of a group's trajectories; comparisons with NaN would drop the group without an error."""
    returns = [trajectory.total_reward for trajectory in group.trajectories]
    for number, value in enumerate(returns):
        if not isfinite(value):
            raise TrainingDiverged(
                f"the return of trajectory {number} of task {group.task} is {value}: look at the rewards of its turns"
            )
    return returns


def _by_spread(groups: Sequence[Group]) -> list[int]:
    """Return the indices of the groups, the most varied first."""
    # Rounded, so that deviations that are equal but for rounding are ties.
    return sorted(range(len(groups)), key=lambda index: (-round(groups[index].uncertainty, 9), index))


def _softmax(numbers: Sequence[float]) -> list[float]:
    # The largest exponent is 0, so that none overflows.
    top = max(numbers)
    powers = [exp(number - top) for number in numbers]
    total = fsum(powers)
    return [power / total for power in powers]


def _outcome(group: Group) -> str:
    return "group_all_solved" if any(trajectory.success for trajectory in group.trajectories) else "group_all_failed"


def _differs_in_a_turn(group: Group) -> bool:
    """Return whether trajectories differ in the reward of some turn that at least two of them have."""
    longest = max((len(trajectory.turns) for trajectory in group.trajectories), default=0)
    by_turn = [
        [trajectory.turns[number].reward for trajectory in group.trajectories if len(trajectory.turns) > number]
        for number in range(longest)
    ]
    return any(not are_equal(rewards) for rewards in by_turn)


def _where(groups: Sequence[Group], holds: Callable[[Group], bool], reason: str | Callable[[Group], str]) -> Filtered:
    kept, dropped = [], Counter[str]()
    for group in groups:
        if holds(group):
            kept.append(group)
        else:
            dropped[reason if isinstance(reason, str) else reason(group)] += 1
    return Filtered(kept, dropped)


def _at(groups: Filtered, places: Sequence[int], reason: str) -> Filtered:
    """Return the groups at some places, and count the others by a reason."""
    left = Counter({reason: len(groups) - len(places)})
    return Filtered([groups[place] for place in sorted(places)], groups.dropped + left)


def _cut(groups: Sequence[Group], keep: int, rank: Callable[[Trajectory], float], reason: str) -> Filtered:
    """Return each group cut to its `keep` trajectories of lowest rank, in their order."""
    check_counts(keep=keep)
    kept, dropped = [], Counter[str]()
    for group in groups:
        # Called for its error: there is no order among returns that are not finite.
        _returns(group)
        ranks = [round(rank(trajectory), 9) for trajectory in group.trajectories]
        places = sorted(sorted(range(len(ranks)), key=lambda place: (ranks[place], place))[:keep])
        kept.append(_with(group, [group.trajectories[place] for place in places]))
        dropped[reason] += len(ranks) - len(places)
    return Filtered(kept, dropped)


def _with(group: Group, trajectories: Sequence[Trajectory]) -> Group:
    return replace(group, trajectories=tuple(trajectories))
