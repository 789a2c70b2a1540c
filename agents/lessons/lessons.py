"""Lessons: from what was collected to the groups that are learned from, by a filter and by credit rules."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tsr_gym.agents.episodes.collect import Collected
from tsr_gym.agents.episodes.trajectory import Group, harvest_all
from tsr_gym.agents.lessons.credit import CreditRule
from tsr_gym.agents.lessons.filters import (
    Filtered,
    keep_all,
    keep_learnable,
    keep_mixed_success,
    keep_top_p,
    keep_uncertain,
    keep_varied,
)
from tsr_gym.agents.runs.config import SearchConfig
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import parse_call

Filter = Callable[[Sequence[Group]], Filtered]


def pick_lessons(config: SearchConfig, credit: Sequence[str] = ()) -> Callable[[Collected], Filtered]:
    """Return what makes groups to learn from of what was collected: the filter's, rewritten by credit rules.

    The filter sees rewards as they were earned. TSPO's gate, ``"learnable"``, rewrites groups that only failed by the
    credit rules itself and passes the others as they are.

    Args:
        config: Names the filter.
        credit: Credit rules, see `pick_credit`.

    Raises:
        ConfigError: There is no such filter or rule.
    """
    rule = pick_credit(credit)
    if config.filter == "learnable":
        if not credit:
            raise ConfigError("the filter learnable asks what a credit rule makes of failed groups: set credit")
        return _picked(partial(keep_learnable, credit=rule), config.filter_when)
    choose = _picked(pick_filter(config), config.filter_when)

    def lessons(collected: Collected) -> Filtered:
        kept = choose(collected)
        return Filtered(map(rule, kept), kept.dropped)

    return lessons


def pick_filter(config: SearchConfig) -> Filter:
    """Return the filter that a configuration names.

    Raises:
        ConfigError: There is no such filter.
    """
    filters: dict[str, Filter] = {
        "uncertainty": partial(keep_uncertain, ratio=config.keep),
        "mixed_success": partial(keep_mixed_success, ratio=config.keep),
        "top_p": partial(keep_top_p, p=config.keep),
        "varied": keep_varied,
        "none": keep_all,
    }
    if config.filter in filters:
        return filters[config.filter]
    try:
        found: Filter = _called(config.filter, "tsr_gym.agents.lessons.filters", [])
    except ConfigError as error:
        raise ConfigError(f"wanted filter {', '.join(filters)}, learnable or a function of yours: {error}") from error
    return found


def pick_credit(names: Sequence[str]) -> CreditRule:
    """Return the credit rules of some names, one after the other, such as ``"format_penalty(penalty=0.2)"``.

    Args:
        names: Of `tsr_gym.agents.lessons.credit` or ``package.module:name``, with literal keywords.

    Raises:
        ConfigError: There is no such rule, or it cannot work with these keywords.
    """
    rules: list[CreditRule] = [_called(name, "tsr_gym.agents.lessons.credit", Group(0, ())) for name in names]

    def rule(group: Group) -> Group:
        for one in rules:
            group = one(group)
        return group

    return rule


def _called(text: str, home: str, nothing: Any) -> Any:
    """Return the function that a text names with its keywords, after a call with nothing to see that they fit."""
    function, given = parse_call(text, home=home)
    try:
        inspect.signature(function).bind(nothing, **given)
        function(nothing, **given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{text!r} cannot be used: {error}") from error
    return partial(function, **given)


def _picked(keep: Filter, when: str) -> Callable[[Collected], Filtered]:
    """Return a filter of what was collected: by the groups as they are, or by all episodes of their searches."""
    if when == "after":
        return lambda collected: keep(collected.groups)

    def before(collected: Collected) -> Filtered:
        everything = [
            Group(group.task, tuple(one for tree in grown for one in harvest_all(tree)))
            for group, grown in zip(collected.groups, collected.trees, strict=True)
        ]
        kept = keep(everything)
        tasks = {group.task for group in kept}
        return Filtered([group for group in collected.groups if group.task in tasks], kept.dropped)

    return before
