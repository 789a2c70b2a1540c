"""Best-first search and Levin tree search."""

from functools import partial
from itertools import pairwise
from math import exp, inf, log, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.worlds import Script, cycle, grow_bare, letters, priced, watch, words_of
from tsr_gym import NotFinite
from tsr_gym.agents.strategies import best_first, levin, puct
from tsr_gym.tree import Candidate


def by_sorting(value, is_done, *, expansions, samples, parallel, alphabet):
    """Return the words in the order in which they grow; values must differ."""
    grown, closed = [], set()
    waiting = [""]
    while expansions and waiting:
        number = min(parallel, expansions)
        batch = sorted(waiting, key=value, reverse=True)[:number]
        waiting = [word for word in waiting if word not in batch]
        expansions -= len(batch)
        for word in batch:
            new = [word + letter for letter in alphabet[:samples]]
            grown += new
            closed.add(word)
            waiting += [child for child in new if not is_done(child)]
    return grown


@given(
    seed=st.integers(0, 10**6),
    expansions=st.integers(1, 12),
    samples=st.integers(1, 3),
    parallel=st.integers(1, 4),
    ends=st.sampled_from(["", "c", "bc"]),
)
def test_the_best_open_node_is_expanded(seed, expansions, samples, parallel, ends):
    pays, _ = priced(seed)
    total = lambda word: sum(pays[word[:end]] for end in range(1, len(word) + 1))  # noqa: E731
    numbers = {"expansions": expansions, "samples": samples, "parallel": parallel}
    wanted = by_sorting(total, lambda word: len(word) == 4 or word[-1] in ends, **numbers, alphabet="abc")
    tree = letters(pays, ends, turns=4).search(cycle("abc"), partial(best_first, **numbers))
    words = words_of(tree)
    assert words[1:] == wanted
    finished = [words[leaf] for leaf in tree.leaves() if tree.nodes[leaf].done]
    leaves = sorted((words[leaf] for leaf in tree.leaves()), key=total, reverse=True)
    chosen = sorted(finished, key=total, reverse=True) or leaves[:1]
    assert [words[end] for end in tree.chosen] == chosen


def expanded(tree, wishes):
    return [words_of(tree)[wish.node] for wish in wishes]


def visited(seed, value, expansions=13):
    asked = []
    search = watch(partial(best_first, expansions=expansions, samples=3, value=value), asked, expanded)
    letters({"a": 1.0, "b": 1.0, "c": 1.0}, turns=3, seed=seed).search(cycle("abc"), search)
    return asked


@pytest.mark.parametrize("seed", range(5))
def test_with_the_depth_as_value_it_searches_depth_first(seed):
    order = visited(seed, lambda tree, node: float(tree.nodes[node].depth))
    # For every order of ties: after a word its descendants are expanded, and only then a sibling.
    assert len(set(order)) == 13
    for before, after in pairwise(order):
        assert after[:-1] == before if len(before) < 2 else after[:-1] == before[: len(after) - 1]
    assert [len(word) for word in order] == [0, 1, 2, 2, 2, 1, 2, 2, 2, 1, 2, 2, 2]


def test_with_its_negative_it_searches_breadth_first():
    order = visited(3, lambda tree, node: -float(tree.nodes[node].depth))
    assert [len(word) for word in order] == [0] + [1] * 3 + [2] * 9


def asked_for(expansions, merge, policy, samples=3):
    """Return the words that were expanded, where the order of letters does not matter."""
    asked = []
    bags = lambda tree, wishes: [tree.nodes[wish.node].observation for wish in wishes]  # noqa: E731
    search = watch(partial(best_first, expansions=expansions, samples=samples, merge=merge), asked, bags)
    letters({"a": 1.0, "b": 2.0, "c": 0.5}, turns=4, bag=True).search(policy, search)
    return asked


@pytest.mark.parametrize("merge", ["state", "turns"])
def test_merging_expands_every_state_once_before_any_is_sampled_again(merge):
    asked = asked_for(30, merge, cycle("abc"))
    # Of three letters there are 1, 3, 6 and 10 bags of up to three.
    assert (len(asked), len(set(asked[:20]))) == (30, 20)
    # The dearest words first, and no state a third time before all were sampled a second.
    assert (asked[20:22], len(set(asked[20:]))) == (["bbb", "abb"], 10)


def test_without_merging_all_words_are_expanded_and_sampling_repeats_nothing():
    asked = asked_for(99, None, cycle("abc"))
    assert (len(asked), len(set(asked))) == (1 + 3 + 9 + 27, 20)
    merged = partial(best_first, expansions=3, samples=1, merge="state")
    tree = letters({"a": 1.0, "b": 2.0, "c": 0.5}, turns=1, bag=True).search(cycle("abc"), merged)
    assert words_of(tree) == ["", "a", "b", "c"]


def counted(strategy, child, **settings):
    """Return the tree, what was chosen and the nodes that were expanded, in order."""
    asked = []
    tree, chosen = grow_bare(watch(strategy, asked), child, **settings)
    return tree, chosen, asked


def said(number, probability):
    """Return a candidate of two tokens whose probabilities multiply to one."""
    half = log(probability) / 2 if probability else -inf
    return Candidate(str(number), token_ids=(number, 0), logprobs=(half, half))


class RandomTree:
    """A tree of random probabilities that add up to 1 at every node; some nodes are solutions, some the end."""

    def __init__(self, seed, branching, depth, solutions):
        self.rng = np.random.default_rng(seed)
        self.branching, self.depth = branching, depth
        self.probabilities, self.solved = {}, set()
        self._grow((), solutions)

    def _grow(self, address, solutions):
        shares = self.rng.dirichlet(np.full(self.branching, 0.5))
        for number in range(self.branching):
            below = (*address, number)
            self.probabilities[below] = float(shares[number])
            if self.rng.random() < solutions:
                self.solved.add(below)
            elif len(below) < self.depth:
                self._grow(below, solutions)

    def chance(self, address):
        product = 1.0
        for end in range(1, len(address) + 1):
            product *= self.probabilities[address[:end]]
        return product

    def child(self, tree, parent, number):
        address = (*tree.branch(parent), number)
        solved = address in self.solved
        fields = {"candidate": said(number, self.probabilities[address]), "info": {"success": solved}}
        return fields | {"terminated": solved, "truncated": not solved and len(address) == self.depth}


@given(
    seed=st.integers(0, 10**6),
    branching=st.integers(1, 3),
    depth=st.integers(1, 6),
    solutions=st.sampled_from([0.02, 0.1, 0.3]),
)
def test_no_more_is_expanded_than_the_theorem_allows(seed, branching, depth, solutions):
    world = RandomTree(seed, branching, depth, solutions)
    search = partial(levin, expansions=10**6, samples=branching, merge=None)
    tree, chosen, asked = counted(search, world.child)
    bound = min(((len(one) + 1) / world.chance(one) for one in world.solved), default=inf)
    assert len(asked) <= bound * (1 + 1e-9)
    assert len(asked) == len(set(asked))
    # What was expanded is everything cheaper than the solution's parent, in the order of its cost.
    costs = [(len(tree.branch(node)) + 1) / world.chance(tree.branch(node)) for node in asked]
    assert costs == pytest.approx(sorted(costs))
    assert bool(world.solved) == any(tree.nodes[end].solved for end in chosen)


LIMITS = st.one_of(st.none(), st.integers(1, 6))


@given(seed=st.integers(0, 10**6), states=st.integers(2, 12), actions=st.integers(1, 3), limit=LIMITS)
def test_the_bound_holds_with_cuts_on_graphs_with_cycles(seed, states, actions, limit):
    rng = np.random.default_rng(seed)
    leads = rng.integers(states, size=(states, actions))
    shares = rng.dirichlet(np.full(actions, 0.7), size=states)
    goal = states - 1

    def child(tree, parent, number):
        here = int.from_bytes(tree.nodes[parent].state_key or b"\0")
        there = int(leads[here, number])
        fields = {"candidate": said(number, shares[here, number]), "state_key": there.to_bytes(2)}
        fields |= {"terminated": there == goal, "info": {"success": there == goal}}
        return fields | {"truncated": there != goal and tree.nodes[parent].depth + 1 == limit}

    # The most probable walk of every length to every state; no walk continues past the goal.
    best, bound = np.where(np.arange(states) == 0, 0.0, -inf), inf
    for depth in range(1, (limit or 4 * states - 1) + 1):
        after = np.full(states, -inf)
        for here in range(goal):
            for number in range(actions):
                there = leads[here, number]
                with np.errstate(divide="ignore"):
                    after[there] = max(after[there], best[here] + np.log(shares[here, number]))
        best = after
        bound = min(bound, (depth + 1) * exp(-best[goal]))
    if bound > 500:
        return
    merge = "state" if limit is None else "turns"
    tree, chosen, asked = counted(partial(levin, expansions=10**4, samples=actions, merge=merge), child)
    assert len(asked) <= bound * (1 + 1e-9)
    assert [tree.nodes[end].solved for end in chosen] == [True] * len(chosen)


@pytest.mark.parametrize(("merge", "solves"), [("state", False), ("turns", True)])
def test_under_a_limit_of_turns_a_likelier_longer_path_cuts_the_only_one_that_is_short_enough(merge, solves):
    # State s with .1 at once or with .81 by way of m; of 3 turns a success needs 2 from s on.
    leads = {"": [("m", 0.9), ("s", 0.1)], "m": [("s", 0.9), ("o", 0.1)], "s": [("t", 0.9), ("o", 0.1)]}
    leads["t"] = [("goal", 0.9), ("o", 0.1)]

    def child(tree, parent, number):
        there, probability = leads[tree.nodes[parent].observation][number % 2]
        fields = {"candidate": said(number, probability), "observation": there, "state_key": there.encode()}
        fields |= {"terminated": there == "goal", "info": {"success": there == "goal"}}
        return fields | {"truncated": there == "o" or (there != "goal" and tree.nodes[parent].depth == 2)}

    tree, chosen, asked = counted(partial(levin, expansions=40, samples=2, merge=merge), child)
    assert any(tree.nodes[end].solved for end in chosen) == solves
    assert not solves or len(asked) <= 4 / (0.1 * 0.9 * 0.9)


def test_sampled_candidates_that_leave_out_a_solution_exceed_the_bound():
    # The success has probability .5, so the bound is 2 / .5 = 4, but the first four samples are the other turn.
    policy = Script({"": "bbbba", "b": "bbbbb"}, {"a": [log(0.5)], "b": [log(0.5)]})
    tree = letters({"a": 1.0, "b": 0.0}, "a", bag=True, turns=1).search(policy, partial(levin, expansions=9, samples=1))
    assert [words_of(tree)[end] for end in tree.chosen] == ["a"]
    assert tree.spent.expansions == 5


def test_an_estimate_of_the_turns_to_go_changes_the_order():
    # For a: (2 + 4) / .5 ** (1 + 4 / 2) = 48; for b: (2 + 1) / .25 ** (1 + 1 / 2) = 24. Without it, 4 against 8.
    policy = Script({"": "ab", "a": "ab", "b": "ab"}, {"a": [log(0.5)], "b": [log(0.25)]})

    def second(**numbers):
        tree = letters({"a": 1.0, "b": 1.0}).search(policy, partial(levin, expansions=2, samples=2, **numbers))
        return words_of(tree)[tree.nodes[-1].parent]

    guess = {"a": 4.0, "b": 1.0}
    assert second() == "a"
    assert second(togo=lambda tree, node: guess.get(words_of(tree)[node], 0.0)) == "b"
    assert second(togo=lambda tree, node: -9.0) == "a"


def test_a_state_is_expanded_again_where_it_is_reached_with_a_larger_probability():
    # The state s is one turn away with .3, and two turns away, by way of m, with .6 * .6 = .36; o always ends.
    leads = {"": [("s", 0.3), ("m", 0.6), ("o", 0.1)], "m": [("s", 0.6), ("m", 0.3), ("o", 0.1)]}
    leads["s"] = [("t", 0.5), ("s", 0.3), ("o", 0.2)]

    def child(tree, parent, number):
        there, probability = leads.get(tree.nodes[parent].observation, [("o", 0.5), ("o", 0.3), ("o", 0.2)])[number]
        fields = {"candidate": said(number, probability), "observation": there, "state_key": there.encode()}
        return fields | {"truncated": there == "o"}

    tree, _, asked = counted(partial(levin, expansions=5, samples=3), child)
    # Costs: m 2/.6 = 3.3, s 2/.3 = 6.7, s by way of m 3/.36 = 8.3, t below that 4/.18 = 22; m after m, 3/.18 = 17, and
    # s after s, 3/.09 and 4/.108, are cut, as is t below the first s, 3/.15 = 20, had it come later.
    assert [tree.nodes[node].observation for node in asked] == ["", "m", "s", "s", "t"]
    assert [tree.nodes[tree.nodes[node].parent].observation for node in asked[1:]] == ["", "", "m", "s"]


@pytest.mark.parametrize(
    ("chance", "logprobs", "wanted"),
    [
        # For a, b and aa: 2/.2, 2/.05 and 3/.04.
        ("sampled", {"a": [log(0.2)], "b": [log(0.1), log(0.5)]}, ["", "a", "b"]),
        # 2/.8, 2/.2 and 3/.64.
        ("proposed", {"a": [log(0.2)], "b": [log(0.1), log(0.5)]}, ["", "a", "aa"]),
        # 2/.5, 2/.5 and 3/.25, as for a policy without tokens.
        ("uniform", {"a": [log(0.2)], "b": [log(0.1), log(0.5)]}, ["", "a", "b"]),
        ("sampled", {}, ["", "a", "b"]),
    ],
)
def test_the_probability_of_a_turn_is_that_of_all_its_tokens_or_its_share_of_the_candidates(chance, logprobs, wanted):
    asked, policy = [], Script({"": "ab", "a": "ab", "aa": "ab", "b": "ab"}, logprobs)
    search = watch(partial(levin, expansions=3, samples=2, chance=chance), asked, expanded)
    letters({"a": 1.0, "b": 1.0}).search(policy, search)
    assert sorted(asked) == sorted(wanted)


def test_levin_does_not_look_at_scores():
    def chosen_with(rank):
        world = letters({"a": 1.0, "b": 2.0, "c": 3.0}, turns=2)
        search = partial(levin, expansions=6, samples=3)
        tree = world.search(cycle("abc"), search, rater=lambda grown: [rank * node for _, node in grown])
        return words_of(tree), [words_of(tree)[end] for end in tree.chosen]

    assert chosen_with(1.0) == chosen_with(-1.0)


@pytest.mark.parametrize(
    "strategy",
    [
        partial(best_first, value=lambda *_: inf),
        partial(levin, togo=lambda *_: nan),
        partial(puct, value=lambda *_: nan),
    ],
)
def test_a_value_that_is_no_number_is_refused_with_its_function_and_node(strategy):
    with pytest.raises(NotFinite, match=r"the value of node 1 by .*test_best_first:<lambda> as a finite number"):
        letters({"a": 1.0}, turns=2).search(cycle("a"), strategy)


def test_what_a_node_said_before_is_no_other_turn():
    seen = []
    search = partial(levin, expansions=1, samples=3, togo=lambda tree, node: seen.append(node) or 0.0)
    letters({"a": 1.0, "b": 1.0}).search(Script({"": "aba"}), search)
    assert seen == [1, 2]


def test_a_turn_of_probability_0_goes_last_and_is_not_lost():
    policy = Script({"": "ab", "a": "ab", "b": "xb"}, {"a": [0.0], "b": [-inf]})
    tree = letters({"a": 1.0, "b": 1.0, "x": 1.0}, "x", turns=2).search(policy, partial(levin, expansions=3, samples=2))
    assert [words_of(tree)[end] for end in tree.chosen] == ["bx"]


def test_where_all_of_a_states_candidates_are_known_it_is_sampled_again():
    policy = Script({"": "aab"}, {"a": [log(0.9)], "b": [log(0.1)]})
    world = letters({"a": 1.0, "b": 3.0}, turns=1)
    tree = world.search(policy, partial(levin, expansions=3, samples=1))
    assert words_of(tree) == ["", "a", "a", "b"]
    assert [words_of(tree)[end] for end in tree.chosen] == ["b", "a"]
