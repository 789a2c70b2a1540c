"""Lessons: which groups are learned from, and what credit rules make of them."""

from dataclasses import replace
from functools import partial

import pytest

from tests.agents.learning.advantages.forests import path
from tests.agents.worlds import Script, letters
from tsr_gym import Budget, ConfigError, NotFinite
from tsr_gym.agents.episodes.collect import Collected
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.trajectory import Group, harvest_all
from tsr_gym.agents.lessons.filters import keep_concise
from tsr_gym.agents.lessons.groups import choose_groups
from tsr_gym.agents.lessons.settings import LessonConfig
from tsr_gym.agents.strategies import naive

# Solved and failed; failed with and without evidence (the guide's score); failed without any.
MIXED = Group(1, (path((1, 1.0), success=True), path((2, 0.0))))
EVIDENT = Group(2, (path((1, 0.0, None, 1.0)), path((2, 0.0))))
BLANK = Group(3, (path((1, 0.0)), path((2, 0.0))))


def collected(*groups):
    return Collected(list(groups), [[] for _ in groups], Budget(), 0, {})


def rewards(groups):
    return [[[turn.reward for turn in trajectory.turns] for trajectory in group.trajectories] for group in groups]


def test_filtering_before_selection_looks_at_all_episodes_and_after_at_the_selected_ones():
    # Two tasks in the world of letters. In the first all selected trajectories are equal, but not all that were tried.
    pays = {"a": 0.0, "b": 3.0, "c": 1.0, "d": 2.0}
    envs = [letters(pays, turns=1, seed=seed) for seed in (1, 2)]
    tried = {1: "abb", 2: "dcd"}

    def policy(requests):
        return [Script({"": tried[tree.seed]})([(tree, wish)])[0] for tree, wish in requests]

    trees = search(envs, policy, partial(naive, rollouts=3), seeds=[1, 2])
    groups = [Group(tree.seed, tuple(sorted(harvest_all(tree), key=lambda t: -t.total_reward)[:2])) for tree in trees]
    # Selected: 3, 3 and 2, 2. Tried: 0, 3, 3 and 2, 1, 2.
    collected = Collected(groups, [[tree] for tree in trees], Budget(), 1, {})

    def kept(**settings):
        return [group.task for group in choose_groups(LessonConfig(**settings))(collected)]

    assert kept(filter="uncertainty(ratio=0.5)", filter_when="after") == []
    assert kept(filter="uncertainty(ratio=0.5)", filter_when="before") == [1]
    assert kept(filter="uncertainty(ratio=1.0)", filter_when="before") == [1, 2]
    assert kept(filter="none", filter_when="after") == [1, 2]
    assert kept(filter="mixed_success", filter_when="before") == []
    # What is handed on are the selected trajectories all the same.
    chosen = choose_groups(LessonConfig(filter="uncertainty(ratio=0.5)", filter_when="before"))(collected)
    assert chosen == [groups[0]]


NONSENSE = {
    "nothing": lambda given: None,
    "no group": lambda given: [1] if isinstance(given, list) else 1,
    "no ways": lambda given: [1] if isinstance(given, list) else replace(given, trajectories=()),
    "another task": lambda given: [replace(MIXED, task=9)] if isinstance(given, list) else replace(given, task=9),
}


def spoil(given, *, what):
    """A filter or a credit rule that is right where there is nothing, so that it is found in the run."""
    empty = not (given if isinstance(given, list) else given.trajectories)
    return given if empty else NONSENSE[what](given)


def endless(group):
    turns = [[replace(turn, reward=float("nan")) for turn in way.turns] for way in group.trajectories]
    ways = [replace(way, turns=tuple(own)) for way, own in zip(group.trajectories, turns, strict=True)]
    return replace(group, trajectories=tuple(ways))


@pytest.mark.parametrize("what", NONSENSE)
def test_a_filter_or_a_rule_that_returns_nonsense_is_named(what):
    part = f"tests.agents.lessons.test_groups:spoil(what={what!r})"
    with pytest.raises(ConfigError, match=r"the filter .*test_groups:spoil: wanted a list of some of the groups"):
        choose_groups(LessonConfig(filter=part))(collected(MIXED, BLANK))
    with pytest.raises(ConfigError, match=r"the credit rule .*test_groups:spoil: wanted the group of task 1"):
        choose_groups(LessonConfig(filter="none", credit=(part,)))(collected(MIXED))


def test_a_rule_that_gives_no_numbers_is_named():
    rule = "tests.agents.lessons.test_groups:endless"
    with pytest.raises(NotFinite, match=r"reward of a turn of trajectory 0 of task 1 by .*test_groups:endless"):
        choose_groups(LessonConfig(filter="none", credit=(rule,)))(collected(MIXED))


def test_a_filter_of_the_library_is_called_by_its_name():
    groups = [replace(MIXED, trajectories=(*MIXED.trajectories, path((3,), (4,))))]
    actual = choose_groups(LessonConfig(filter="keep_concise(keep=2)"))(collected(*groups))
    assert actual == keep_concise(groups, 2)
    assert actual.dropped == {"trajectory_less_concise": 1}


def test_credit_rules_apply_in_order_after_the_filter():
    rules = ("length_penalty(max_tokens=2, cache=2)", "tests.agents.lessons.test_groups:doubled")
    actual = choose_groups(LessonConfig(filter="varied", credit=rules))(collected(MIXED, BLANK))
    # Two tokens a turn cost the full penalty of 1; the blank group varied in nothing before that.
    assert rewards(actual) == [[[0.0], [-2.0]]]
    turned = choose_groups(LessonConfig(filter="varied", credit=rules[::-1]))(collected(MIXED))
    assert rewards(turned) == [[[1.0], [-1.0]]]
    assert actual.dropped == {"group_equal_returns": 1}


def doubled(group):
    def twice(trajectory):
        return replace(trajectory, turns=tuple(replace(turn, reward=2 * turn.reward) for turn in trajectory.turns))

    return Group(group.task, tuple(map(twice, group.trajectories)))


def test_the_gate_passes_mixed_groups_and_failed_ones_that_a_rule_tells_apart():
    lessons = choose_groups(LessonConfig(filter="learnable", credit=("first_occurrence(evidence='score')",)))
    actual = lessons(collected(MIXED, EVIDENT, BLANK))
    assert rewards(actual) == [[[1.0], [0.0]], [[0.5], [0.0]]]
    assert actual.dropped == {"group_all_failed_alike": 1}
    with pytest.raises(ConfigError, match="set credit"):
        choose_groups(LessonConfig(filter="learnable"))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("nothing", "there is no credit rule 'nothing': wanted one of"),
        ("format_penalty(fine=1)", r"the credit rule 'format_penalty' has no \['fine'\]; it has \['penalty'\]"),
        ("length_penalty", r"the credit rule 'length_penalty' needs \['max_tokens', 'cache'\]: write"),
        ("length_penalty(max_tokens=2, cache=3)", "cannot be used: wanted max_tokens as a whole number >= 3"),
        ("first_occurrence(alpha=2)", "cannot be used: wanted alpha > 0 and <= 1"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_before_the_run(rule, message):
    with pytest.raises(ConfigError, match=message):
        LessonConfig(credit=(rule,))


@pytest.mark.parametrize("name", ["best", "keep_best(kept=3)", "keep_concise(keep=0)"])
def test_a_filter_that_cannot_work_is_refused_before_the_run(name):
    with pytest.raises(ConfigError, match="wanted filter uncertainty, mixed_success, top_p, varied, none, learnable"):
        choose_groups(LessonConfig(filter=name))
