"""PUCT: simulations, priors, backups and progressive widening, against numbers worked out by hand."""

from collections import defaultdict
from functools import partial
from math import exp, floor, log, sqrt
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.worlds import cycle, grow_bare, letters, picture, priced, watch, words_of
from tests.tsr_gym.testing.worlds import Walk
from tsr_gym import Candidate
from tsr_gym.agents.strategies import puct
from tsr_gym.agents.strategies.puct import Rules, Visits
from tsr_gym.wrappers import TreeSearchWrapper

TURNS = 4


def spelled(place):
    """Return the word of a place, which is the numbers of the candidates that lead to it."""
    return "".join("abc"[number % 3] for number in place)


def twin(pays, *, simulations, moves, c, k, alpha, backup, ends=""):
    """Search as published, with lists of returns instead of sums; return the words in their order and the chosen."""
    returns, kids, order = defaultdict(list), defaultdict(int), []

    def worth(place):
        word = spelled(place)
        return sum(pays[word[:end]] for end in range(1, len(word) + 1))

    def quality(place):
        if backup == "mean":
            return fmean(returns[place])
        return max([quality((*place, number)) for number in range(kids[place])], default=worth(place))

    def bound(place):
        above = place[:-1]
        everything = [value for values in returns.values() for value in values]
        low, high = min(everything), max(everything)
        scaled = (quality(place) - low) / (high - low) if high > low else 0.0
        passed = len(returns[above])
        weight = c + log((1 + passed + 19652) / 19652)
        return scaled + weight / kids[above] * sqrt(passed) / (1 + len(returns[place]))

    def done(place):
        return len(place) == TURNS or (place and spelled(place)[-1] in ends)

    def simulate(here):
        path = [here]
        while not done(path[-1]):
            place = path[-1]
            grows = kids[place] < max(1, floor(k * len(returns[place]) ** alpha))
            if grows:
                path.append((*place, kids[place]))
                kids[place] += 1
                order.append(spelled(path[-1]))
                break
            path.append(max([(*place, number) for number in range(kids[place])], key=bound))
        for place in path:
            returns[place].append(worth(path[-1]))

    def favourite(place):
        children = [(*place, number) for number in range(kids[place])]
        return max(children, key=lambda child: (len(returns[child]), quality(child)))

    here = ()
    while not done(here):
        for _ in range(simulations):
            simulate(here)
        moves -= 1
        if moves == 0:
            while kids[here]:
                here = favourite(here)
            break
        here = favourite(here)
    return order, spelled(here)


@given(
    seed=st.integers(0, 10**6),
    simulations=st.integers(1, 15),
    moves=st.integers(1, 5),
    c=st.sampled_from([0.0, 0.5, 1.25, 5.0]),
    widening=st.sampled_from([(1, 0), (2, 0), (3, 0), (1, 0.5), (0.5, 0.5)]),
    backup=st.sampled_from(["mean", "max"]),
    ends=st.sampled_from(["", "c"]),
)
def test_it_searches_as_published(seed, simulations, moves, c, widening, backup, ends):
    pays, _ = priced(seed)
    k, alpha = widening
    numbers = {"simulations": simulations, "moves": moves, "c": c, "k": k, "alpha": alpha, "backup": backup}
    order, chosen = twin(pays, **numbers, ends=ends)
    tree = letters(pays, ends, turns=TURNS).search(cycle("abc"), partial(puct, **numbers))
    words = words_of(tree)
    assert words[1:] == order
    assert [words[end] for end in tree.chosen] == [chosen]


def test_a_critic_that_knows_the_future_needs_one_simulation_per_candidate():
    pays, returns = priced(3)

    def future(tree, node):
        word = words_of(tree)[node]
        return max(value for full, value in returns.items() if full.startswith(word))

    strategy = partial(puct, simulations=3, k=3, alpha=0, value=future)
    tree = letters(pays, turns=TURNS).search(cycle("abc"), strategy)
    assert words_of(tree)[tree.chosen[0]] == max(returns, key=returns.get)


@given(seed=st.integers(0, 999), simulations=st.integers(1, 60), k=st.floats(0.3, 4), alpha=st.floats(0, 1))
def test_widening_gives_the_root_as_many_candidates_as_it_says(seed, simulations, k, alpha):
    def child(tree, parent, number):
        return {"score": (tree.seed + 7 * parent + 3 * number) % 11}

    tree, _ = grow_bare(partial(puct, simulations=simulations, moves=1, k=k, alpha=alpha), child, seed=seed)
    # Every simulation samples one node, and it is a child of the root whenever that has fewer than k N**alpha.
    assert len(tree.nodes) == 1 + simulations
    wanted = 0
    for passed in range(simulations):
        wanted += wanted < max(1, int(k * passed**alpha))
    assert len(tree.children(0)) == wanted


def test_parallel_simulations_ask_less_often_and_sample_as_much():
    def rounds(parallel):
        strategy = partial(puct, simulations=24, moves=1, k=3, alpha=0, parallel=parallel)
        tree = letters(priced(5)[0], turns=TURNS).search(cycle("abc"), strategy)
        return tree.spent.model_calls, len(tree.nodes)

    calls, sizes = zip(*[rounds(parallel) for parallel in (1, 2, 4, 8)], strict=True)
    assert (sizes[0], calls[0]) == (25, 24)
    assert list(calls) == sorted(calls, reverse=True)
    assert calls[-1] <= 6
    assert min(sizes) >= 20


def test_a_chain_that_waits_for_its_only_candidate_does_not_ask_for_another():
    strategy = partial(puct, simulations=4, moves=1, k=1, alpha=0, parallel=4)
    tree = letters({"a": 1.0}, turns=9).search(cycle("a"), strategy)
    assert [len(tree.children(node)) for node in range(4)] == [1, 1, 1, 1]
    assert tree.spent.model_calls == 4


def test_dead_ends_are_left_alone_where_anything_else_is_there():
    def visited(dead):
        env = letters({"a": 1.0, "b": 5.0}, turns=3, dead=dead)
        tree = env.search(cycle("ab"), partial(puct, simulations=20, k=2, alpha=0))
        return words_of(tree)[tree.chosen[0]]

    assert (visited([]), visited(["b"])) == ("bbb", "abb")
    # Below b all is lost, so that b, though it pays 5, is worth no more than the least that was seen.
    assert visited(["bb", "ba"]) == "abb"
    assert visited(["a", "b"]) in ("a", "b")


def test_rollouts_value_a_candidate_by_where_the_policy_comes_to():
    # The first letters pay the same; the letters after them do not.
    pays = {"a": 0.0, "b": 0.0, "c": 0.0, "ca": 3.0}
    for turns, wanted in ((0, None), (1, "c"), (None, "c")):
        env = letters(pays, turns=2, seed=1)
        strategy = partial(puct, simulations=3, moves=1, k=3, alpha=0, rollout_turns=turns)
        tree = env.search(cycle("abc"), strategy)
        assert len(tree.nodes) == (4 if turns == 0 else 7)
        assert wanted in (None, words_of(tree)[tree.chosen[0]])


@pytest.mark.parametrize("parallel", [1, 3])
def test_merging_gives_every_state_candidates_once_and_finds_the_optimum_with_fewer_samples(parallel):
    pays = {"a": 0.2, "b": 0.1, "c": 0.0, "abc": 1.0, "aabcc": 3.0}

    def searched(merge):
        asked = []
        plan = partial(puct, simulations=400, moves=1, c=30, k=3, alpha=0, merge=merge, parallel=parallel)
        tree = letters(pays, turns=5, bag=True).search(cycle("abc"), watch(plan, asked))
        states = [{tree.nodes[node].observation for node in asked}, set(asked)]
        return tree, *map(len, states)

    tree, states, nodes = searched("turns")
    # Of three letters there are 1, 3, 6, 10 and 15 bags of up to four.
    assert states == nodes == 35
    assert len(tree.nodes) == 1 + 3 * 35
    plain, states, nodes = searched(None)
    assert nodes > states
    assert len(plain.nodes) > len(tree.nodes)


@pytest.mark.parametrize("merge", ["state", "turns"])
def test_merged_searches_of_whole_episodes_reach_the_best_bag(merge):
    """Bags of four letters in any order; brute force over all words gives the best."""
    pays, _ = priced(8)
    pays = {word: price for word, price in pays.items() if list(word) == sorted(word)} | {"b": 0.3, "c": -0.2}

    def total(word):
        worth, bag = 0.0, ""
        for letter in word:
            worth += pays.get(bag + letter, pays[letter])
            bag = "".join(sorted(bag + letter))
        return worth

    def words(length):
        return [""] if not length else [word + letter for word in words(length - 1) for letter in "abc"]

    best = max(map(total, words(4)))
    env = letters(pays, turns=4, bag=True)
    tree = env.search(cycle("abc"), partial(puct, simulations=300, k=3, alpha=0, merge=merge, backup="max"))
    assert tree.total(tree.chosen[0], "reward") == pytest.approx(best)


def test_states_that_come_back_do_not_catch_a_simulation():
    env = TreeSearchWrapper(Walk())
    env.reset(seed=3)
    policy = cycle(["Right", "Left"])
    tree = env.search(policy, partial(puct, simulations=20, k=2, alpha=0, merge="state"))
    assert tree.nodes[tree.chosen[0]].done
    again = TreeSearchWrapper(Walk())
    again.reset(seed=3)
    assert picture(again.search(policy, partial(puct, simulations=20, k=2, alpha=0, merge="state"))) == picture(tree)


RULES = {"c": 1.25, "k": 2.0, "alpha": 0.5, "prior": "mean", "temperature": 1.0}
RULES |= {"value": None, "backup": "mean", "merge": None}
LOGPROBS = [(-1.0,), (-1.0, -3.0), (-0.5, -0.5, -0.5)]


def grown(**rules):
    """Return the visits of a tree of three candidates, of scores 1, 2 and 3, and below the last a turn of score -1."""

    def child(tree, parent, number):
        return {"score": -1.0 if parent else number + 1.0, "candidate": Candidate("", logprobs=LOGPROBS[number])}

    tree, _ = grow_bare(lambda tree: iter([[(0, 3)], [(3, 1)]]), child)
    return Visits(tree, Rules(**(RULES | rules)))


@pytest.mark.parametrize(
    ("rules", "logits"),
    [
        ({"prior": "sum"}, [-1, -4, -1.5]),
        ({"prior": "mean"}, [-1, -2, -0.5]),
        ({"prior": "sum", "temperature": 2.0}, [-0.5, -2, -0.75]),
        ({"prior": "uniform"}, [0, 0, 0]),
    ],
)
def test_priors_are_a_softmax_of_what_the_policy_thought(rules, logits):
    visits = grown(**rules)
    visits.enter(0)
    for leaf in (1, 2, 3):
        visits.await_candidate([0])
        visits.add_candidate([0], leaf)
    total = sum(map(exp, logits))
    assert visits._seen[0].priors == pytest.approx([exp(logit) / total for logit in logits])


@pytest.mark.parametrize(
    ("backup", "wanted"),
    [
        # Paths are worth 1, 2, 3 and, one turn further, 3 - 1.
        ("mean", [(1 + 2 + 3 + 2) / 4, 1, 2, (3 + 2) / 2, 2]),
        # What is known below the third candidate replaces what it looked worth itself.
        ("max", [2, 1, 2, 2, 2]),
    ],
)
def test_returns_are_backed_up_to_every_node_on_the_way(backup, wanted):
    visits = grown(backup=backup)
    visits.enter(0)
    for path, leaf in (([0], 1), ([0], 2), ([0], 3), ([0, 3], 4)):
        visits.await_candidate(path)
        visits.add_candidate(path, leaf)
        visits.back_up([*path, leaf], leaf)
    assert [visits.quality(node) for node in range(5)] == wanted
    assert [visits._seen[node].visits for node in range(5)] == [4, 1, 1, 2, 1]
    assert (visits.most_visited(0), visits.end_of_most_visited(0)) == (3, 4)


def test_a_simulation_waits_where_everything_is_under_way():
    visits = grown(k=1.0, alpha=0.0)
    visits.enter(0)
    walk = visits.walk(0)
    assert walk == ([0], True)
    visits.await_candidate(walk.path)
    assert visits.walk(0) is None
    visits.add_candidate(walk.path, 1)
    visits.back_up([0, 1], 1)
    assert visits.walk(0) == ([0, 1], True)
