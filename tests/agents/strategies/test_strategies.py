"""What holds for every strategy, and the order of nodes."""

import json
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.worlds import PUSHER, WALKER, Script, cycle, grow_bare, lake, letters, picture, rooms, watch, words_of
from tsr_gym import ConfigError, Tree
from tsr_gym.agents import strategies
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.trajectory import harvest, harvest_all
from tsr_gym.agents.strategies import (
    adaptive,
    beam,
    best_first,
    best_of_n,
    greedy,
    levin,
    lookahead,
    naive,
    puct,
    random_branching,
)
from tsr_gym.agents.strategies.order import distinct, identity, is_dead, ranked

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))

# Every strategy with small numbers, and those of its options that change what it does.
ALL = {
    "naive": partial(naive, rollouts=3),
    "best_of_n": partial(best_of_n, n=4, keep=2),
    "greedy": partial(greedy, branching=3),
    "beam": partial(beam, width=2, branching=2),
    "beam, last, merged": partial(beam, width=3, branching=2, rank="last", merge="turns"),
    "lookahead": partial(lookahead, branching=2, depth=1),
    "lookahead, max": partial(lookahead, branching=2, depth=2, rollouts=2, reduce="max"),
    "random_branching": partial(random_branching, trees=2, nodes=2, rounds=2),
    "best_first": partial(best_first, expansions=9, samples=2),
    "best_first, merged": partial(best_first, expansions=9, samples=2, parallel=3, merge="state"),
    "levin": partial(levin, expansions=9, samples=2),
    "levin, said or not": partial(levin, expansions=9, samples=3, parallel=2, chance="proposed", merge=None),
    "puct": partial(puct, simulations=6),
    "puct, merged": partial(puct, simulations=8, parallel=3, merge="state", rollout_turns=1, backup="max"),
    "adaptive": partial(adaptive, min_rollouts=3, max_rollouts=7, outcome="return"),
}


def test_every_strategy_has_a_golden_tree():
    assert {json.loads(path.read_text())["strategy"] for path in GOLDEN} == set(strategies.__all__)
    assert {bound.func.__name__ for bound in ALL.values()} == set(strategies.__all__)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_strategy_grows_the_tree_that_was_worked_out_by_hand(path):
    case = json.loads(path.read_text())
    world = {name: case[name] for name in ("score_of", "seed", "dead", "bag") if name in case}
    env = letters(case["pays"], case["ends"], case["turns"], **world)
    grow, rounds = partial(getattr(strategies, case["strategy"]), **case["numbers"]), []
    watched = watch(grow, rounds, lambda tree, wishes: [[list(wish) for wish in wishes]])
    policy = Script(case["says"], case.get("logprobs"))
    tree = env.search(policy, watched)
    assert rounds == case["rounds"]
    ends = {(True, False): "ended", (False, True): "cut", (False, False): "open"}
    grown = [[n.parent, n.candidate.text, ends[n.terminated, n.truncated]] for n in tree.nodes[1:]]
    assert (grown, policy.calls) == (case["nodes"], len(case["rounds"]))
    words = words_of(tree)
    finished = {words[leaf]: tree.merit(leaf) for leaf in tree.leaves() if tree.nodes[leaf].done}
    assert finished == pytest.approx(case["finished"])
    if "chosen" in case:
        assert [words[end] for end in tree.chosen] == case["chosen"]


SINGLE = {
    "beam(1, 1)": partial(beam, width=1, branching=1),
    "greedy(1)": partial(greedy, branching=1),
    "best_of_n(1)": partial(best_of_n, n=1),
    "lookahead(1, 0)": partial(lookahead, branching=1, depth=0),
    "random_branching(1, 1, 0)": partial(random_branching, trees=1, nodes=1, rounds=0),
    "best_first, one sample": partial(best_first, expansions=99, samples=1),
    "levin, one sample": partial(levin, expansions=99, samples=1, merge=None),
    "puct, one simulation a move": partial(puct, simulations=1, k=1, alpha=0),
    "puct, one candidate a node": partial(puct, simulations=40, k=1, alpha=0, moves=1),
    "adaptive(1, 1)": partial(adaptive, min_rollouts=1, max_rollouts=1),
}


@pytest.mark.parametrize("strategy", SINGLE)
@pytest.mark.parametrize(("world", "policy"), [(rooms, PUSHER), (lake, WALKER)], ids=["Sokoban", "FrozenLake"])
def test_a_search_of_one_is_a_plain_rollout(world, policy, strategy):
    def played(strategy):
        envs = [world(seed) for seed in range(8)]
        trees = search(envs, policy, strategy, seeds=range(100, 108))
        assert all(len(harvest_all(tree)) == 1 for tree in trees)
        return [(harvest(tree), picture(tree)) for tree in trees]

    assert played(SINGLE[strategy]) == played(naive)


@pytest.mark.parametrize("strategy", ALL)
def test_a_tree_does_not_depend_on_which_others_grow_beside_it(strategy):
    def grown(order, workers=None):
        envs = {seed: lake(seed) for seed in order}
        trees = search(list(envs.values()), WALKER, ALL[strategy], seeds=list(envs), workers=workers)
        return {seed: (picture(tree), list(tree.chosen)) for seed, tree in zip(envs, trees, strict=True)}

    together = grown(range(6))
    assert (grown([4, 2, 5, 0, 3, 1]), grown([3])) == (together, {3: together[3]})
    assert grown(range(6), workers=2) == together


@pytest.mark.parametrize("strategy", ALL)
def test_a_strategy_only_reads(strategy, monkeypatch):
    def forbidden(*_args, **_named):
        raise AssertionError("a strategy has written into the tree")

    def guarded(tree):
        plan = ALL[strategy](tree)
        while True:
            with monkeypatch.context() as patch:
                for method in ("add", "charge", "spend", "choose", "rate"):
                    patch.setattr(Tree, method, forbidden)
                try:
                    wishes = next(plan)
                except StopIteration as end:
                    return end.value
            yield wishes

    assert len(lake(1).search(WALKER, guarded).nodes) > 1


@given(
    prices=st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=4, max_size=4),
    dead=st.sets(st.text("abcx", min_size=1, max_size=3), max_size=12),
    bag=st.booleans(),
    seed=st.integers(0, 9),
    strategy=st.sampled_from(sorted(ALL)),
)
def test_only_open_nodes_are_expanded_and_what_is_chosen_has_grown(prices, dead, bag, seed, strategy):
    def seen(tree, wishes):
        assert len({wish.node for wish in wishes}) == len(wishes)
        return [tree.nodes[wish.node] for wish in wishes]

    asked = []
    env = letters(dict(zip("abcx", prices, strict=True)), "x", 4, seed=seed, dead=dead, bag=bag)
    tree = env.search(cycle("abcx"), watch(ALL[strategy], asked, seen))
    assert all(node.is_open for node in asked)
    assert len(set(tree.chosen)) == len(tree.chosen)
    assert tree.root not in tree.chosen
    assert all(not tree.children(end) for end in tree.chosen if "puct" not in strategy)


@pytest.mark.parametrize("strategy", ALL)
@pytest.mark.parametrize(("world", "policy"), [(rooms, PUSHER), (lake, WALKER)], ids=["Sokoban", "FrozenLake"])
def test_every_strategy_harvests_whole_episodes_and_plays_them(world, policy, strategy):
    tree = world(5).search(policy, ALL[strategy])
    if "best_first" not in strategy and "levin" not in strategy:
        assert harvest(tree)
        assert all(tree.nodes[end].done for end in tree.chosen)
    played = world(5).rollout(policy, ALL[strategy])
    assert played.nodes[played.played[-1]].done


def test_ties_are_broken_by_the_seed_of_the_tree_and_by_nothing_else():
    def chosen(seed, strategy):
        env = letters({"a": 1.0, "b": 1.0}, turns=2, seed=seed)
        tree = env.search(Script({"": "ab", "a": "aba", "b": "aba"}), strategy)
        words = words_of(tree)
        # With width 1 and branching 2 the path that was followed is the one that has grandchildren.
        return next(words[node.parent] for node in tree.nodes if node.depth == 2)

    for strategy in (
        partial(beam, width=1, branching=2),
        partial(lookahead, branching=2, depth=0),
        partial(best_first, expansions=2, samples=2),
        partial(levin, expansions=2, samples=2),
        partial(puct, simulations=2, k=2, alpha=0),
    ):
        first = [chosen(seed, strategy) for seed in range(60)]
        assert first == [chosen(seed, strategy) for seed in range(60)]
        # Sixty throws of a fair coin: 30, give or take four standard deviations.
        assert 15 <= first.count("a") <= 45


def test_a_tie_of_more_than_one_turn_is_broken_by_where_a_node_is_and_not_by_its_number():
    def kept(order):
        env = letters({"a": 1.0, "b": 1.0, "c": 1.0}, turns=1, seed=7)
        tree = env.search(Script({"": order}), partial(best_of_n, n=3))
        return tree.branch(tree.chosen[0])

    assert kept("abc") == kept("cba")


@pytest.mark.parametrize("strategy", ALL)
def test_a_search_at_the_end_of_an_episode_wants_and_chooses_nothing(strategy):
    env = letters({"a": 1.0}, "a")
    env.step("a")
    tree = env.search(Script({}), ALL[strategy])
    assert (len(env.tree.nodes), tree.chosen) == (2, ())


@pytest.mark.parametrize("strategy", ALL)
def test_a_search_below_the_cursor_counts_only_from_there(strategy):
    # The played turn a is worth 9 and is the same for all; below it the search is as if there were nothing above.
    pays = {"a": 9.0, "b": 1.0, "c": 2.0, "x": 0.25}
    below = letters(pays, "x", turns=5)
    below.step("a")
    view = below.search(cycle("bcx"), ALL[strategy])
    alone = letters(pays, "x", turns=4).search(cycle("bcx"), ALL[strategy])
    assert view.root == 1
    grown = [word.removeprefix("a") for word in words_of(view.at(0))[2:]]
    if strategy in ("random_branching", "adaptive") or "levin" in strategy:
        # Where draws and ties derive from addresses, as they must, a search elsewhere is another one.
        assert len(grown) >= 3
    else:
        assert sorted(grown) == sorted(words_of(alone)[1:])
    assert all(view.merit(end) < 9 for end in view.leaves())


WRONG_COUNTS = {
    naive: {"rollouts"},
    best_of_n: {"n", "keep"},
    beam: {"width", "branching", "depth"},
    greedy: {"branching", "depth"},
    lookahead: {"branching", "depth", "rollouts", "moves"},
    random_branching: {"trees", "nodes", "rounds"},
    best_first: {"expansions", "samples", "parallel"},
    levin: {"expansions", "samples", "parallel"},
    puct: {"simulations", "moves", "rollout_turns", "parallel"},
    adaptive: {"min_rollouts", "max_rollouts", "parallel"},
}


@pytest.mark.parametrize("strategy", WRONG_COUNTS)
def test_counts_that_are_no_whole_numbers_are_refused(strategy):
    env = letters({"a": 1.0}, turns=2)
    wrong = (-1, 2.5, 1e9, float("nan"), float("inf"), True, "2")
    for name, number in product(sorted(WRONG_COUNTS[strategy]), wrong):
        with pytest.raises(ConfigError, match=rf"wanted {name} as a whole number >= [014], got "):
            env.search(Script({"": "aaa", "a": "aaa"}), partial(strategy, **{name: number}))
    assert len(env.tree.nodes) == 1


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (partial(best_of_n, n=2, keep=3), "wanted keep of at most the n=2 episodes, got 3"),
        (partial(beam, rank="best"), "wanted rank of .*, got 'best'"),
        (partial(beam, merge="all"), "wanted merge of None, 'state' or 'turns', got 'all'"),
        (partial(lookahead, reduce="min"), "wanted reduce of 'mean' or 'max', got 'min'"),
        (partial(best_first, merge="all"), "wanted merge of None"),
        (partial(levin, chance="mean"), "wanted chance of 'sampled', 'proposed' or 'uniform', got 'mean'"),
        (partial(levin, merge="all"), "wanted merge of None"),
        (partial(puct, c=float("nan")), "wanted c >= 0, got nan"),
        (partial(puct, k=float("inf")), "wanted k > 0, got inf"),
        (partial(puct, alpha=1.5), "wanted alpha >= 0 and <= 1, got 1.5"),
        (partial(puct, temperature=0.0), "wanted temperature > 0, got 0.0"),
        (partial(puct, prior="flat"), "wanted prior of .*, got 'flat' and 'mean'"),
        (partial(puct, backup="min"), "wanted prior of .*, got 'mean' and 'min'"),
        (partial(puct, merge="all"), "wanted merge of None"),
        (partial(adaptive, min_rollouts=5, max_rollouts=4), "wanted max_rollouts as a whole number >= 5, got 4"),
        (partial(adaptive, trust=float("nan")), "wanted trust >= 0, got nan"),
        (partial(adaptive, outcome="score"), "wanted outcome of 'success' or 'return', got 'score'"),
    ],
)
def test_impossible_numbers_are_refused(strategy, message):
    env = letters({"a": 1.0}, turns=2)
    with pytest.raises(ValueError, match=message):
        env.search(Script({"": "aaa", "a": "aaa"}), strategy)
    assert len(env.tree.nodes) == 1


def grown():
    """0 the empty word; 1: a, 2: b; below a 3: ab, 4: ax (ended); below b 5: ba, 6: bx (ended); below ab 7: abc."""
    env = letters({"a": 1.0, "b": 2.0, "c": 0.0, "x": 0.0}, "x", 3, bag=True)
    env.expand(0, ["a", "b"])
    env.expand(1, ["b", "x"])
    env.expand(2, ["a", "x"])
    env.expand(3, ["c"])
    return env.tree


@pytest.mark.parametrize("merge", ["state", "turns"])
def test_nodes_in_one_state_are_one(merge):
    tree = grown()
    assert identity(tree, 3, merge) == identity(tree, 5, merge) != identity(tree, 1, merge)
    assert distinct(tree, [6, 5, 4, 3, 2, 1], merge) == [6, 5, 4, 2, 1]


def test_without_merging_after_an_end_or_without_a_key_a_node_is_only_itself():
    tree = grown()
    everything = list(range(8))
    assert distinct(tree, everything, None) == everything
    assert [identity(tree, node, "state") for node in (4, 6, 7)] == [4, 6, 7]
    tree, _ = grow_bare(lambda tree: iter([[(0, 3)]]), lambda tree, parent, number: {})
    assert distinct(tree, [1, 2, 3], "state") == [1, 2, 3]


def test_the_turns_that_are_left_may_belong_to_the_state():
    # The same word after one turn and after two, because one answer of the policy changed nothing.
    env = letters({"a": 1.0, "": 0.0}, turns=5)
    env.expand(0, ["a", ""])
    env.expand(2, ["a"])
    tree = env.tree
    assert distinct(tree, [1, 3], "state") == [1]
    assert distinct(tree, [1, 3], "turns") == [1, 3]


def siblings(**settings):
    env = letters({"a": 1.0, "b": 2.0, "c": 3.0, "d": 3.0}, "c", **settings)
    env.expand(0, list("abcd"))
    return env.tree


def test_the_best_come_first_and_dead_ends_which_no_end_is_last():
    tree = siblings(dead=["d"])
    assert ranked(tree, [1, 2, 3, 4], tree.merit) == [3, 2, 1, 4]
    assert ranked(tree, [1, 2, 3, 4], lambda node: -tree.merit(node)) == [1, 2, 3, 4]
    assert [is_dead(tree, node) for node in range(5)] == [False, False, False, False, True]
    tree = letters({"a": 1.0, "x": 0.0}, "x", dead=["x"])
    tree.expand(0, ["x"])
    assert not is_dead(tree.tree, 1)


def test_ties_are_broken_as_the_tree_breaks_them():
    orders = set()
    for seed in range(8):
        tree = siblings(seed=seed)
        equal = ranked(tree, [1, 2, 3, 4], lambda node: 0.1 + 0.2 if node % 2 else 0.3)
        assert equal == ranked(tree, [4, 3, 2, 1], lambda node: 0.0)
        orders.add(tuple(equal))
        assert ranked(tree, [3, 4], tree.merit) == tree.best([3, 4], 2)
    assert len(orders) > 4
