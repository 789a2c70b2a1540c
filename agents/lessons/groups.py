"""Groups to learn from: chosen by a filter from what was collected, and rewritten by credit rules."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tsr_gym.agents.episodes.collect import Collected
from tsr_gym.agents.episodes.trajectory import Group, harvest_all
from tsr_gym.agents.lessons.credit import CreditRule
from tsr_gym.agents.lessons.filters import Filtered, keep_learnable
from tsr_gym.agents.lessons.settings import LessonConfig
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import choose, fold, parse_call

Filter = Callable[[Sequence[Group]], Filtered]
FILTERS = "tsr_gym.agents.lessons.filters"
# Filters by the words that configurations have for them.
SHORT = {
    "uncertainty": "keep_uncertain",
    "mixed_success": "keep_mixed_success",
    "top_p": "keep_top_p",
    "varied": "keep_varied",
    "none": "keep_all",
    "learnable": "keep_learnable",
}


def choose_groups(config: LessonConfig) -> Callable[[Collected], Filtered]:
    """Return the function from what was collected to the groups that are learned from.

    The filter sees rewards as they were earned. TSPO's gate, ``"learnable"``, rewrites groups that only failed by the
    credit rules itself and passes the others as they are.

    Raises:
        ConfigError: There is no such filter or rule.
    """
    credit = choose_credit(config.credit)
    keep = choose_filter(config.filter, credit=credit if config.credit else None)
    select = partial(_before_selection if config.filter_when == "before" else _after_selection, keep=keep)
    if keep.func is keep_learnable:
        return select

    def credited(collected: Collected) -> Filtered:
        kept = select(collected)
        return Filtered(map(credit, kept), kept.dropped)

    return credited


def choose_filter(text: str, *, credit: CreditRule | None = None) -> "partial[Any]":
    """Return the filter that a text such as ``"mixed_success(ratio=0.5)"`` names.

    Args:
        text: One of `SHORT`, a function of `tsr_gym.agents.lessons.filters`, or ``package.module:name``.
        credit: Credit rule for TSPO's gate.

    Raises:
        ConfigError: There is no such filter, it cannot have these numbers, or it needs a credit rule.
    """
    try:
        call = _in_full(text)
        if call == "keep_learnable" and credit is None:
            raise ConfigError("the filter learnable asks what a credit rule makes of failed groups: set credit")
        return choose(
            call,
            home=FILTERS,
            what="filter",
            offered={"credit": credit},
            among=lambda one: one.__name__.startswith("keep_"),
            trial=lambda keep: keep([]),
        )
    except ConfigError as error:
        raise ConfigError(f"wanted filter {', '.join(SHORT)}, or a filter with its numbers: {error}") from error


def fold_keep(text: str, keep: float | None) -> str:
    """Return a filter's call with the share of what it keeps written into it.

    Raises:
        ConfigError: It keeps no share, or says already which.
    """
    if keep is None:
        return text
    name = "p" if parse_call(text).name in ("top_p", "keep_top_p") else "ratio"
    call = parse_call(fold(_in_full(text), {name: keep}, home=FILTERS, what="filter"))
    return str(call._replace(name=parse_call(text).name))


def _in_full(text: str) -> str:
    call = parse_call(text, what="filter")
    return str(call._replace(name=SHORT.get(call.name, call.name)))


def choose_credit(names: Sequence[str]) -> CreditRule:
    """Return the credit rules of some calls, one after the other, such as ``"format_penalty(penalty=0.2)"``.

    Args:
        names: Of `tsr_gym.agents.lessons.credit` or ``package.module:name``, with literal keywords.

    Raises:
        ConfigError: There is no such rule, or it cannot work with these keywords.
    """
    nothing = Group(0, ())
    rules = [
        choose(name, home="tsr_gym.agents.lessons.credit", what="credit rule", trial=lambda rule: rule(nothing))
        for name in names
    ]

    def credited(group: Group) -> Group:
        for rule in rules:
            group = rule(group)
        return group

    return credited


def _after_selection(collected: Collected, keep: Filter) -> Filtered:
    return _counted(keep(collected.groups), collected.groups)


def _before_selection(collected: Collected, keep: Filter) -> Filtered:
    """Return the groups that a filter keeps by all episodes of their searches."""
    everything = [
        Group(group.task, tuple(one for tree in grown for one in harvest_all(tree)))
        for group, grown in zip(collected.groups, collected.trees, strict=True)
    ]
    kept = _counted(keep(everything), everything)
    tasks = {group.task for group in kept}
    return Filtered([group for group in collected.groups if group.task in tasks], kept.dropped)


def _counted(kept: Sequence[Group], groups: Sequence[Group]) -> Filtered:
    """Return what a filter kept with what it left out, which a filter of somebody's own need not count itself."""
    if isinstance(kept, Filtered):
        return kept
    return Filtered(kept, Counter(group_filtered=len(groups) - len(kept)))
