"""Collect: the same number of trajectories per instance for every search, and their cost."""

from dataclasses import replace
from functools import partial

import pytest

from tests.agents.worlds import WALKER
from tsr_gym import Budget, Candidate, ConfigError, Expand
from tsr_gym.agents.episodes.collect import Collector, Place, choose_search
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.episodes.trajectory import harvest_all
from tsr_gym.agents.lessons.groups import choose_groups
from tsr_gym.agents.lessons.settings import LessonConfig
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies import beam, best_of_n, lookahead, naive
from tsr_gym.agents.strategies.order import harvested
from tsr_gym.wrappers.score_wrapper import ScoreWrapper

WORLDS = {
    "FrozenLake": (("frozen_lake", {}), WALKER),
    "Sokoban": (("sokoban", {}), RandomPolicy(("Up", "Down", "Left", "Right"), max_actions=5)),
}


def collector(config, world="Sokoban", *, policy=None, seed=0):
    (env, settings), walker = WORLDS[world]
    return Collector(config, EnvPool(env, settings), policy or walker, seed=seed)


def halves(tree, *, branching, luck=3):
    """A strategy of one's own, with a number that the configuration does not have: plain rollouts, each a round."""
    assert luck == 3
    yield from naive(tree, rollouts=branching)


SEARCHES = {
    "naive": {"search": "naive"},
    "best_of_n": {"search": "best_of_n(n=9)"},
    "beam": {"search": "beam"},
    "beam, two paths of each": {"search": "beam", "paths_per_search": 2},
    "lookahead": {"search": "lookahead(branching=2, depth=1)"},
    "one's own": {"search": "tests.agents.episodes.test_collect:halves(branching=4)"},
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_yields_the_same_number_of_trajectories_per_instance(world, name):
    config = SearchConfig(groups=5, trajectories=4, **SEARCHES[name])
    found = collector(config, world).collect(0, 5)
    assert [len(group.trajectories) for group in found.groups] == [4] * 5
    assert len({group.task for group in found.groups}) == 5
    plain = config.name in ("naive", "best_of_n")
    assert [len(trees) for trees in found.trees] == [1 if plain else 4 // config.paths_per_search] * 5
    if name == "beam, two paths of each":
        assert any(a.turns != b.turns for a, b, *_ in (group.trajectories for group in found.groups))
    labels = {trajectory.selected_by for group in found.groups for trajectory in group.trajectories}
    assert labels == {config.name}


def thrice(tree):
    """Sample the first node three times, so that one node has three expansions."""
    for _ in range(3):
        yield [Expand(tree.root, 2)]
    return tree.children(tree.root)[:1]


def test_a_trajectory_remembers_the_expansions_of_its_search():
    found = collector(SearchConfig(search=f"{__name__}:thrice", trajectories=2, naive=1)).collect(0, 4)
    for group, trees in zip(found.groups, found.trees, strict=True):
        # Three at the first node, then one for every turn to the end of the episode; the last tree is plain play.
        made = [3 + max(node.depth for node in tree.nodes) - 1 for tree in trees]
        assert [one.expansions for one in group.trajectories] == [*made[:-1], 0]


def test_random_branching_yields_all_that_it_played_tree_by_tree():
    config = SearchConfig(search="random_branching(trees=3, nodes=2, rounds=2)", trajectories=4)
    found = collector(config, "FrozenLake").collect(0, 4)
    for group, trees in zip(found.groups, found.trees, strict=True):
        assert len(trees) == 1
        # Three chains, and in each tree two rounds of two continuations.
        assert [t.tree for t in group.trajectories] == [0] * 5 + [1] * 5 + [2] * 5
        assert {t.selected_by for t in group.trajectories} == {"random_branching"}
    assert any(len({turn.node for t in group.trajectories for turn in t.turns}) < 75 for group in found.groups)


def test_adaptive_sampling_yields_more_where_outcomes_differ():
    config = SearchConfig(search="adaptive(min_rollouts=3, max_rollouts=9)", trajectories=4)
    groups = collector(config, "FrozenLake").collect(0, 12).groups
    assert {(len(group.trajectories), group.has_mixed_success) for group in groups} == {(3, False), (9, True)}


def test_best_of_n_keeps_the_best_by_return_of_the_very_rollouts_that_naive_would_play():
    pool, policy = EnvPool("sokoban", {}), WORLDS["Sokoban"][1]
    best = Collector(SearchConfig(search="best_of_n(n=10)", trajectories=3), pool, policy, seed=0).collect(0, 6)
    every = Collector(SearchConfig(search="naive", trajectories=10), pool, policy, seed=0).collect(0, 6)
    for few, many in zip(best.groups, every.groups, strict=True):
        returns = sorted((trajectory.total_reward for trajectory in many.trajectories), reverse=True)
        # Approximately: sums of the same rewards in another order are a tie.
        assert [trajectory.total_reward for trajectory in few.trajectories] == pytest.approx(returns[:3])
        assert {t.turns for t in few.trajectories} <= {t.turns for t in many.trajectories}


def test_best_of_n_goes_by_reward_and_other_searches_by_the_score():
    pool = EnvPool("sokoban", {}, score="tests.agents.episodes.test_collect:Contrary")
    for search, by in (("best_of_n(n=12)", "total_reward"), ("beam", "score")):
        config = SearchConfig(search=search, trajectories=1)
        collected = Collector(config, pool, WORLDS["Sokoban"][1], seed=0).collect(0, 4)
        for group, (tree,) in zip(collected.groups, collected.trees, strict=True):
            (kept,) = group.trajectories
            assert kept.score == pytest.approx(-kept.total_reward)
            assert getattr(kept, by) == pytest.approx(max(getattr(path, by) for path in harvest_all(tree)))


def test_trajectories_know_what_their_search_went_by():
    def told(**settings):
        pruned = settings.get("dead_ends", "off")
        pool = EnvPool("sokoban", {}, score="SokobanScore(potential='estimate')", dead_ends=pruned)
        config = SearchConfig(trajectories=1, **settings)
        found = Collector(config, pool, WORLDS["Sokoban"][1], seed=0).collect(0, 1)
        return [(one.selected_by, one.selected_for) for one in found.groups[0].trajectories]

    assert told(search="beam", naive=1) == [("beam", "SokobanScore(potential='estimate')"), ("naive", "")]
    assert told(search="best_of_n(n=2)") == [("best_of_n", "reward")]
    assert told(search="best_of_n(n=2)", dead_ends="proven") == [("best_of_n", "reward, dead ends proven")]


class Contrary(ScoreWrapper):
    """A scorer that hates reward."""

    def score(self, before, action, after, reward):
        return -reward


def pictures(found):
    return [(group.task, group.trajectories) for group in found.groups]


@pytest.mark.parametrize("name", SEARCHES)
def test_an_instance_does_not_depend_on_which_others_are_collected_with_it(name):
    config = SearchConfig(trajectories=4, **SEARCHES[name])
    whole = pictures(collector(config, "FrozenLake").collect(3, 4))
    parts = [pictures(collector(config, "FrozenLake").collect(number, 1))[0] for number in (3, 4, 5, 6)]
    assert whole == parts
    assert pictures(collector(config, "FrozenLake", seed=1).collect(3, 4)) != whole
    # Every method of a run sees the same instances in the same order.
    plain = collector(SearchConfig(trajectories=4), "FrozenLake").collect(3, 4)
    assert [task for task, _ in whole] == [group.task for group in plain.groups]


def test_searches_of_an_instance_are_independent_with_the_dice_of_the_configuration():
    found = collector(SearchConfig(search="beam", trajectories=6), "FrozenLake").collect(0, 4)
    for trees in found.trees:
        assert len({tree.seed for tree in trees}) == 6
        assert len({tuple(node.observation for node in tree.nodes) for tree in trees}) > 1
        assert len({tree.nodes[0].observation for tree in trees}) == 1
    (trees,) = collector(SearchConfig(trajectories=1, noise="same"), "FrozenLake").collect(0, 1).trees
    assert trees[0].about["clairvoyant"]


def test_what_was_spent_is_the_sum_over_the_trees_and_calls_are_counted_once():
    calls = []

    def counted(requests):
        calls.append(len(requests))
        return WALKER(requests)

    found = collector(SearchConfig(search="beam", trajectories=2), "FrozenLake", policy=counted).collect(0, 3)
    assert found.spent == sum((tree.spent for trees in found.trees for tree in trees), Budget())
    assert found.model_calls == len(calls) <= 5
    assert calls[0] == 6
    assert found.spent.env_steps == sum(len(tree.nodes) - 1 for trees in found.trees for tree in trees)
    assert set(found.seconds) == {"model", "env", "tree"}
    assert all(seconds >= 0 for seconds in found.seconds.values())


def test_rounds_add_up_and_evaluation_is_plain_play():
    source = collector(SearchConfig(trajectories=2), "FrozenLake")
    one, two = source.collect(0, 2), source.collect(2, 3)
    both = one + two
    assert [group.task for group in both.groups] == [group.task for group in source.collect(0, 5).groups]
    assert both.spent == one.spent + two.spent
    assert both.model_calls == one.model_calls + two.model_calls
    assert both.seconds["model"] == one.seconds["model"] + two.seconds["model"]
    assert len(both.trees) == 5
    config = SearchConfig(search="beam", trajectories=2, naive=3)
    found = collector(config, "FrozenLake").play_at([Place(number) for number in range(4)])
    assert [[t.selected_by for t in group.trajectories] for group in found.groups] == [["naive"] * 5] * 4


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("naive", partial(naive, rollouts=6)),
        # One search selects all trajectories of an instance, unless its call sets the number.
        ("best_of_n(n=7)", partial(best_of_n, n=7, keep=6)),
        ("best_of_n(keep=2)", partial(best_of_n, keep=2)),
        ("beam", partial(beam)),
        ("beam(width=9, depth=1)", partial(beam, width=9, depth=1)),
        ("lookahead", partial(lookahead)),
        ("tests.agents.episodes.test_collect:halves(branching=5)", partial(halves, branching=5)),
    ],
)
def test_a_strategy_gets_the_numbers_that_it_names(name, expected):
    found = choose_search(SearchConfig(trajectories=6, search=name)).strategy
    assert (found.func, found.keywords) == (expected.func, expected.keywords)


def test_plain_play_joins_the_searched_trajectories_of_each_instance():
    config = SearchConfig(search="beam", trajectories=4, naive=3)
    mixed = collector(config, "FrozenLake").collect(0, 3)
    searched = collector(replace(config, naive=0), "FrozenLake").collect(0, 3)
    for group, alone, trees in zip(mixed.groups, searched.groups, mixed.trees, strict=True):
        assert (group.task, group.trajectories[:4]) == (alone.task, alone.trajectories)
        assert [one.selected_by for one in group.trajectories[4:]] == ["naive"] * 3
        assert {one.tree for one in group.trajectories[4:]} == {4}
        assert len(trees) == 5
    assert mixed.spent.env_steps == sum(tree.spent.env_steps for trees in mixed.trees for tree in trees)
    # The result is that of plain play of these instances alone, on separate dice.
    others = collector(replace(config, naive=5), "FrozenLake").collect(2, 1)
    assert stories(others.groups[0].trajectories[4:7]) == stories(mixed.groups[2].trajectories[4:])


def stories(trajectories):
    """Return the events of a tree without the numbers of its nodes."""
    return [[(turn.observation, turn.reward) for turn in one.turns] for one in trajectories]


def test_all_branches_of_a_search_can_be_learned_from():
    config = SearchConfig(search="beam", trajectories=2, learn_from="leaves")
    found = collector(config, "FrozenLake").collect(0, 3)
    for group, trees in zip(found.groups, found.trees, strict=True):
        assert len(group.trajectories) == sum(len(tree.leaves()) for tree in trees) > 2
        assert {one.selected_by for one in group.trajectories} == {"beam"}
        assert {one.tree for one in group.trajectories} == {0, 1}
        said = {(one.tree, turn.node) for one in group.trajectories for turn in one.turns}
        assert len(said) == sum(len(tree.nodes) - 1 for tree in trees)


def test_a_policy_that_says_nothing_understandable_still_gives_whole_groups():
    def mumble(requests):
        return [[Candidate("mumble")] * wish.samples for _, wish in requests]

    found = collector(SearchConfig(search="beam", trajectories=3), policy=mumble).collect(0, 2)
    assert [len(group.trajectories) for group in found.groups] == [3, 3]
    # Five turns without the form, at 0.1 each.
    assert {round(t.total_reward, 9) for group in found.groups for t in group.trajectories} == {-0.5}
    assert choose_groups(LessonConfig())(found) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"search": "naive", "trajectories": 8}, "8 rollouts"),
        ({"search": "best_of_n(n=12)", "trajectories": 8}, "1 search x 8"),
        ({"search": "best_of_n(n=12, keep=2)", "trajectories": 8}, "4 searches x 2"),
        ({"search": "beam", "trajectories": 8}, "8 searches x 1"),
        ({"search": "lookahead", "trajectories": 8, "paths_per_search": 4}, "2 searches x 4"),
        ({"search": "beam", "trajectories": 8, "learn_from": "leaves"}, "8 searches, all leaves"),
        ({"search": "adaptive", "trajectories": 8}, "all episodes of adaptive"),
        # A width of a strategy of others need not be a beam's.
        ({"search": "examples.own_parts:look_ahead(width=2)", "trajectories": 8}, "8 searches x 1"),
        ({"search": "beam", "trajectories": 8, "learn_from": "episodes"}, "all episodes of beam"),
    ],
)
def test_results_say_how_the_trajectories_of_an_instance_came_to_be(settings, words):
    assert choose_search(SearchConfig(**settings)).words == words


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"search": "dream"}, r"there is no strategy 'dream': .*wanted one of adaptive, beam.* or package.module:name"),
        ({"search": "naive(rollouts=3)"}, r"plays 3 episodes per instance and trajectories is 16"),
        (
            {"search": "tsr_gym.agents.strategies:best_of_n(n=8)"},
            r"at most the n=8 episodes, got 16: raise n",
        ),
        ({"search": "best_of_n(keep=3)"}, r"multiple of the paths of a search, got trajectories=16 and 3"),
        ({"search": "best_of_n", "paths_per_search": 2}, r"write best_of_n\(keep=2\), and leave out paths_per_search"),
        ({"search": "beam(width=2)", "paths_per_search": 4}, r"may select fewer than the 4 paths .*: raise width"),
        ({"search": "beam(width=9)", "paths_per_search": 3}, r"trajectories=16 and 3"),
        ({"search": "beam(width=0)"}, r"'beam\(width=0\)' cannot be used: wanted width as a whole number >= 1"),
    ],
)
def test_searches_that_do_not_give_the_trajectories_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        choose_search(SearchConfig(**settings))


@harvested("episodes")
def everything(tree):
    yield from naive(tree, rollouts=3)


def test_a_strategy_of_ones_own_says_how_its_trees_are_harvested_and_a_setting_overrules_it():
    name = "tests.agents.episodes.test_collect:everything"
    (group,) = collector(SearchConfig(search=name, trajectories=4), "FrozenLake").collect(0, 1).groups
    assert len(group.trajectories) == 3
    found = collector(SearchConfig(search=name, trajectories=2, learn_from="selected"), "FrozenLake").collect(0, 1)
    assert [len(found.trees[0]), len(found.groups[0].trajectories)] == [2, 2]
    halved = "tests.agents.episodes.test_collect:halves(branching=3)"
    (group,) = collector(SearchConfig(search=halved, learn_from="branches"), "FrozenLake").collect(0, 1).groups
    # Each branch below the root is a separate tree.
    assert {one.tree for one in group.trajectories} == {0, 1, 2}


# Searches that stop before their paths have ended, or at what is proven lost.
CUT_SHORT = {
    "beam(depth=2)": {"search": "beam(depth=2)"},
    "best_first(expansions=3)": {"search": "best_first(expansions=3, samples=2)"},
    "puct": {"search": "puct(simulations=3, moves=1)"},
    "beam, dead ends": {"search": "beam", "dead_ends": "proven"},
    "best_of_n, dead ends": {"search": "best_of_n(n=8)", "dead_ends": "proven"},
    "naive, dead ends": {"search": "naive", "dead_ends": "limits"},
    "adaptive, dead ends": {"search": "adaptive(min_rollouts=3, max_rollouts=6)", "dead_ends": "proven"},
}


@pytest.mark.parametrize("name", CUT_SHORT)
def test_whatever_is_learned_from_is_played_to_its_end_and_as_many_as_are_promised(name):
    config = SearchConfig(trajectories=4, **CUT_SHORT[name])
    pool = EnvPool("sokoban", {"max_turns": 6}, dead_ends=config.dead_ends)
    found = Collector(config, pool, WORLDS["Sokoban"][1], seed=0).collect(0, 6)
    trajectories = [one for group in found.groups for one in group.trajectories]
    assert all(one.finished for one in trajectories)
    if "adaptive" not in name:
        assert [len(group.trajectories) for group in found.groups] == [4] * 6
    # A failure has used up what the limits allow, lost or not: playing on and failing is never dearer.
    for one in (one for one in trajectories if not one.success):
        assert len(one.turns) == 6 or sum(turn.num_actions for turn in one.turns) == pool.base.limits.max_actions


def test_a_dead_end_is_never_selected_before_a_path_that_went_on():
    def collected(dead_ends):
        pool = EnvPool("sokoban", {"max_turns": 6}, dead_ends=dead_ends)
        config = SearchConfig(search="best_of_n(n=8)", trajectories=4, dead_ends=dead_ends)
        return Collector(config, pool, WORLDS["Sokoban"][1], seed=0).collect(0, 12)

    for group, (tree,) in zip((pruned := collected("proven")).groups, pruned.trees, strict=True):
        lost = [any(tree.nodes[turn.node].info.get("dead_end") for turn in one.turns) for one in group.trajectories]
        assert lost == sorted(lost)
    assert any(tree.nodes[leaf].info.get("dead_end") for (tree,) in pruned.trees for leaf in tree.leaves())


def test_only_what_plain_play_has_not_solved_is_searched():
    settings = {"search": "beam", "trajectories": 2, "naive": 2}
    both = collector(SearchConfig(**settings), "FrozenLake").collect(3, 12)
    lean = collector(SearchConfig(**settings, search_when="failed"), "FrozenLake").collect(3, 12)
    solved = [any(t.success for t in group.trajectories if t.selected_by == "naive") for group in both.groups]
    assert 0 < sum(solved) < 12
    for group, whole, was_solved in zip(lean.groups, both.groups, solved, strict=True):
        # What is searched, and what is played, is what it would have been.
        assert group.trajectories == (whole.trajectories[2:] if was_solved else whole.trajectories)
    assert [len(trees) for trees in lean.trees] == [1 if was_solved else 3 for was_solved in solved]
    assert lean.spent.sampled_tokens == sum(tree.spent.sampled_tokens for trees in lean.trees for tree in trees)


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_failed_play_is_searched_by_chance(chance):
    config = SearchConfig(search="beam", trajectories=1, naive=2, search_when="cheaper")
    both = collector(config, "FrozenLake").collect(3, 24, chance=chance)
    again = collector(config, "FrozenLake").collect(9, 18, chance=chance)
    assert again.groups == both.groups[6:]
    names = [[trajectory.selected_by for trajectory in group.trajectories] for group in both.groups]
    first = [any(trajectory.success for trajectory in group.trajectories[-2:]) for group in both.groups]
    drawn = [tuple(group) for group, solved in zip(names, first, strict=True) if not solved]
    wanted = {("naive",) * 2: 1 - chance, ("beam", "naive", "naive"): chance}
    assert {*drawn} == {way for way, share in wanted.items() if share}
    counts = {name: tried.groups for name, tried in both.tried.items()}
    assert counts == {"play": 24} | ({"search": sum(len(way) > 2 for way in drawn)} if chance else {})


def test_searches_can_have_another_policy_than_plain_play():
    def refuse(requests):
        raise AssertionError("plain play asks the policy")

    config = SearchConfig(search="beam(width=1, branching=1)", trajectories=1, naive=0)
    (env, settings), walker = WORLDS["FrozenLake"]
    Collector(config, EnvPool(env, settings), refuse, seed=0, searcher=walker).collect(0, 2)
