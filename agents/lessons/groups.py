"""Groups to learn from: selected by a filter from the collected groups, and rewritten by credit rules."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from tsr_gym.agents.episodes.collect import Collected
from tsr_gym.agents.episodes.trajectory import Group, harvest_all
from tsr_gym.agents.lessons.filters import Filtered, keep_learnable
from tsr_gym.agents.lessons.settings import LessonConfig, in_order, kept_groups

Filter = Callable[[Sequence[Group]], Filtered]


def choose_groups(config: LessonConfig) -> Callable[[Collected], Filtered]:
    """Return the function from collected groups to the groups that are learned from, rewritten by the credit rules.

    The filter gets the original rewards. TSPO's gate, ``"learnable"``, applies the credit rules itself, to groups that
    only failed, and passes the others unchanged.
    """
    keep = config.filter.bound
    select = partial(_before_selection if config.filter_when == "before" else _after_selection, keep=keep)
    if keep.func is keep_learnable:
        return select
    credit = in_order([rule.bound for rule in config.credit])

    def credited(collected: Collected) -> Filtered:
        kept = select(collected)
        return Filtered(map(credit, kept), kept.dropped)

    return credited


def _after_selection(collected: Collected, keep: Filter) -> Filtered:
    return _counted(kept_groups(keep, collected.groups), collected.groups)


def _before_selection(collected: Collected, keep: Filter) -> Filtered:
    """Return the groups that a filter keeps by all episodes of their searches, with their selected trajectories."""
    episodes = [
        Group(group.task, tuple(trajectory for tree in trees for trajectory in harvest_all(tree)))
        for group, trees in zip(collected.groups, collected.trees, strict=True)
    ]
    kept = _counted(kept_groups(keep, episodes), episodes)
    tasks = {group.task for group in kept}
    return Filtered([group for group in collected.groups if group.task in tasks], kept.dropped)


def _counted(kept: Sequence[Group], groups: Sequence[Group]) -> Filtered:
    """Return the kept groups with the counts of those left out, also for a user's filter that returns a plain list."""
    if isinstance(kept, Filtered):
        return kept
    return Filtered(kept, Counter(group_filtered=len(groups) - len(kept)))
