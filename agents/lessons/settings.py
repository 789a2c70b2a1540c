"""Settings of which groups are learned from, and of their credit: names become filters and rules here; torch-free."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.lessons.credit import CreditRule
from tsr_gym.errors import ConfigError, named, shown
from tsr_gym.keywords import Choice, bind, choose, fold, parse_call
from tsr_gym.ranges import finite
from tsr_gym.sections import check_choices, check_numbers, setting

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonConfig:
    """Which groups are learned from, and whose credit their rewards are."""

    filter: Choice = setting("uncertainty", metavar="CALL")
    """Which groups are learned from, with the filter's numbers: uncertainty(ratio=0.25) (those whose returns vary most;
    paper), mixed_success(ratio=1.0) (with successes and failures), top_p(p=0.9) (that hold a share of all variation;
    RAGEN-2), varied, none (all), learnable (TSPO's gate with the rules of `credit`), or another filter of
    tsr_gym.agents.lessons.filters, as in keep_concise(keep=4)."""
    filter_when: Literal["after", "before"] = "after"
    """Filter by the selected trajectories (released code), or before selection by all episodes of the searches."""
    credit: tuple[Choice, ...] = setting((), metavar="CALL")
    """Rules that rewrite rewards or weights before advantages are computed, in order, such as
    format_penalty(penalty=0.2); see tsr_gym.agents.lessons.credit."""

    def __post_init__(self) -> None:
        check_choices(self)
        credit = tuple(bind(text, choose_credit) for text in self.credit)
        object.__setattr__(self, "credit", credit)
        # TSPO's gate, the filter "learnable", applies the credit rules itself.
        rules = in_order([rule.bound for rule in credit]) if credit else None
        object.__setattr__(self, "filter", bind(self.filter, partial(choose_filter, credit=rules)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The store of solved instances, and the fits of the policy to it (expert iteration)."""

    fit_passes: float = 0.0
    """Keep the first move of the shortest known way to success from every state of the solved instances, and fit the
    policy to it by so many passes; 0 keeps no store. After many passes the policy is sure and its searches see less."""
    fit_growth: float = 0.5
    """Fit whenever the store has grown by this share since the last fit, and after the last update."""
    fit_batch: int = 64
    """Moves per step of a fit."""
    fit_lr: float | None = None
    """Learning rate of a fit, which falls to a tenth; None for the policy's."""
    fit_from: Literal["first", "current"] = "first"
    """Weights that a fit begins with: those that the run began with, or the present ones."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_numbers(self, "fit_passes", "fit_growth", "fit_lr", least=0)
        check_numbers(self, "fit_batch", least=1)


def choose_filter(text: str, *, credit: CreditRule | None = None) -> "partial[Any]":
    """Return the filter that a text such as ``"mixed_success(ratio=0.5)"`` names.

    Args:
        text: One of `SHORT`, a function of `tsr_gym.agents.lessons.filters`, or ``package.module:name``.
        credit: Credit rule for TSPO's gate.

    Raises:
        ConfigError: There is no such filter, it does not take these numbers, or it needs a credit rule.
    """
    try:
        call = _in_full(text)
        if call == "keep_learnable" and credit is None:
            raise ConfigError("the filter learnable applies a credit rule to failed groups: set credit")
        return choose(
            call,
            home=FILTERS,
            what="filter",
            offered={"credit": credit},
            among=lambda function: function.__name__.startswith("keep_"),
            trial=lambda keep: kept_groups(keep, []),
        )
    except ConfigError as error:
        raise ConfigError(f"wanted filter {', '.join(SHORT)}, or a filter with its numbers: {error}") from error


def choose_credit(text: str) -> "partial[Any]":
    """Return the credit rule of a call such as ``"format_penalty(penalty=0.2)"``.

    Args:
        text: A function of `tsr_gym.agents.lessons.credit` or ``package.module:name``, with literal keywords.

    Raises:
        ConfigError: There is no such rule, or it does not take these keywords.
    """
    home = "tsr_gym.agents.lessons.credit"
    return choose(text, home=home, what="credit rule", trial=lambda rule: _apply((rule,), Group(0, ())))


def in_order(rules: Sequence[CreditRule]) -> CreditRule:
    """Return the credit rule that applies some rules one after the other."""
    return partial(_apply, tuple(rules))


def _apply(rules: Sequence[CreditRule], group: Group) -> Group:
    for rule in rules:
        before, group = group, rule(group)
        where = f"the credit rule {named(rule)}"
        if not isinstance(group, Group) or not _same_turns(before, group):
            raise ConfigError(
                f"{where}: wanted the group of task {before.task} with its {len(before.trajectories)} trajectories and "
                f"their turns, got {shown(group)}"
            )
        for number, trajectory in enumerate(group.trajectories):
            finite(trajectory.counts, f"the weight of trajectory {number} of task {group.task}", rule)
            for turn in trajectory.turns:
                finite(turn.reward, f"the reward of a turn of trajectory {number} of task {group.task}", rule)
    return group


def _same_turns(before: Group, after: Group) -> bool:
    lengths = [[len(trajectory.turns) for trajectory in group.trajectories] for group in (before, after)]
    return before.task == after.task and lengths[0] == lengths[1]


def kept_groups(keep: Callable[[Sequence[Group]], Sequence[Group]], groups: Sequence[Group]) -> Sequence[Group]:
    """Return the groups that a filter keeps.

    Raises:
        ConfigError: The filter returns something else than groups of the tasks that it was given.
    """
    kept, tasks = keep(groups), {group.task for group in groups}
    of_these = isinstance(kept, list | tuple) and all(isinstance(group, Group) for group in kept)
    if not of_these or not {group.task for group in kept} <= tasks:
        raise ConfigError(f"the filter {named(keep)}: wanted a list of some of the groups, got {shown(kept)}")
    return kept


def fold_keep(text: str, keep: float | None) -> str:
    """Return a filter's call with the share of groups that it keeps written into it.

    Raises:
        ConfigError: The filter has no share, or the call already sets it.
    """
    if keep is None:
        return text
    name = "p" if parse_call(text).name in ("top_p", "keep_top_p") else "ratio"
    call = parse_call(fold(_in_full(text), {name: keep}, home=FILTERS, what="filter"))
    return str(call._replace(name=parse_call(text).name))


def _in_full(text: str) -> str:
    call = parse_call(text, what="filter")
    return str(call._replace(name=SHORT.get(call.name, call.name)))
