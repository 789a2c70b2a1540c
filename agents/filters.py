"""Filters: which groups are worth learning from."""

from collections.abc import Callable, Sequence
from math import ceil

from tsr_gym.agents.trajectory import Group

Filter = Callable[[Sequence[Group]], list[Group]]


def keep_all(groups: Sequence[Group]) -> list[Group]:
    """Return all groups."""
    return list(groups)


def keep_uncertain(groups: Sequence[Group], ratio: float) -> list[Group]:
    """Return the groups whose returns vary most (TSR Eq. 10, StarPO-S), in their order.

    Groups without any variation are never kept, because they teach nothing; ties go to the earlier group.

    Args:
        groups: Candidates.
        ratio: Share of the groups to keep, 0.25 in the paper; at least one.
    """
    if not 0 < ratio <= 1:
        raise ValueError(f"wanted a ratio 0 < ratio <= 1, got {ratio}")
    most = ceil(ratio * len(groups) - 1e-9)
    ranked = sorted(range(len(groups)), key=lambda index: (-round(groups[index].uncertainty, 9), index))
    chosen = sorted(index for index in ranked[:most] if groups[index].uncertainty > 1e-9)
    return [groups[index] for index in chosen]


def keep_mixed_success(groups: Sequence[Group], ratio: float) -> list[Group]:
    """Return the most uncertain of those groups in which some trajectories succeeded and some failed.

    Where every trajectory fails, returns still vary by the price of each action, and a learner that keeps such groups
    learns to act less until it does nothing.

    Args:
        groups: Candidates.
        ratio: Share of all groups to keep at most; at least one.
    """
    mixed = [group for group in groups if group.has_mixed_success]
    if not mixed:
        return []
    return keep_uncertain(mixed, min(1.0, ratio * len(groups) / len(mixed)))
