"""Graph credit, worked out by hand, against searches by other means, and on the example that fools siblings."""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from itertools import product
from math import inf
from statistics import mean, stdev

import numpy as np
import pytest
import torch

from tests.agents.learning.advantages.forests import Sampled, batch_of, by_turn, path
from tests.agents.worlds import Script, letters
from tests.conftest import seeds
from tsr_gym import Candidate
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.trajectory import Edge, Group, edges_along, harvest_edges
from tsr_gym.agents.learning.advantages import graph, grpo
from tsr_gym.agents.learning.advantages.turns import edge_values
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.strategies import beam

GOAL = (True, True)
OPEN = (False, False)
END = (False, True)


def edge(move, after=None, kind=OPEN, actions=1):
    """Return an edge from a text such as "sa": action a in state s."""
    state, action = move
    return Edge(state.encode(), action, None if after is None else after.encode(), actions, *kind)


def walk(moves, success=False, **more):
    """Return a trajectory from a text such as "sa tb", which earns 1 for a success."""
    *before, last = moves.split()
    turns = [Sampled(-1, 0.0, move[0].encode(), action=move[1]) for move in before]
    return path(*turns, Sampled(-1, float(success), last[0].encode(), action=last[1]), success=success, **more)


# Six states: s leads to t and u, u to t and v, t to the goal; v is a loop and an end, x is a candidate that was left.
SIX = [
    edge("sa", "t"), edge("tg", "g", GOAL), edge("sb", "u"), edge("ua", "t"), edge("ub", "v"), edge("vc", "v"),
    edge("vd", "z", END), edge("sc", "x"), edge("ud", "s"),
]  # fmt: skip


def valued(edges, **numbers):
    """Return the value of each edge, None where it is unknown."""
    actual = edge_values(collate([Group(0, (walk("sa"),))], edges={0: edges}).edges, **numbers)
    return [value if seen else None for value, seen in zip(actual.value.tolist(), actual.known.tolist(), strict=True)]


def test_a_move_is_worth_the_way_that_is_left_after_it():
    # d: t 1, s 2, u 2 (by t); v never. Edges: w to the power of d of where they lead, and 1.
    assert valued(SIX, w=0.5) == [1 / 4, 1 / 2, 1 / 8, 1 / 4, 0, 0, 0, None, 1 / 8]
    assert valued(SIX, w=1.0) == [1, 1, 1, 1, 0, 0, 0, None, 1]
    # An end by a limit is worth what is known of the state.
    tried = [edge("sa", "t", END), edge("tb", "g", GOAL), edge("sc", "u", END)]
    assert valued(tried, w=0.5) == [0.25, 0.5, 0.0]
    # A turn of several actions costs as many where actions are counted.
    tried = [edge("sa", "t", actions=3), edge("sb", "t", actions=0), edge("tc", "g", GOAL, actions=2)]
    assert valued(tried, w=0.5) == [0.25, 0.25, 0.5]
    assert valued(tried, w=0.5, cost="action") == [0.5**5, 0.5**3, 0.25]


def test_moves_are_compared_with_all_that_were_tried_in_their_state():
    # One trajectory of each way, so that episodes compare as 1 and 0 with a mean of 1/2.
    ways = [walk("sb ua tg", success=True), walk("ud sc")]
    batch = collate([Group(0, tuple(ways))], edges={0: SIX})
    # In u: a has 1/4, b 0, d 1/8; shares 1, 0, 1/2 with the mean 1/2. In s: a 1/4, b 1/8; shares 1, 1/2, mean 3/4.
    # In t there is only g, and c leads to an unknown state.
    assert by_turn(batch, graph(batch, w=0.5, scale="none")) == [[0.25, 1.0, 0.5], [-0.5, -0.5]]
    assert by_turn(batch, graph(batch, w=0.5, scale="none", step_weight=2.0))[0] == [0.0, 1.5, 0.5]
    # Episodes lie 1/sqrt 2 deviations off their mean, and so do two moves; 1, 0, 1/2 deviate by 1/2.
    side = 0.5**0.5
    actual = by_turn(batch, graph(batch, w=0.5))
    assert actual == [pytest.approx([0, side + 1, side], abs=1e-5), pytest.approx([-side, -side], abs=1e-5)]


def test_every_try_counts_in_the_mean_of_its_state():
    tried = [edge("sa", "g", GOAL), edge("sa", "g", GOAL), edge("sa", "g", GOAL), edge("sb", "z", END)]
    batch = collate([Group(0, (walk("sb"), walk("sa", success=True)))], edges={0: tried})
    # Shares 1, 1, 1, 0: 3/4 on average.
    assert by_turn(batch, graph(batch, scale="none")) == [[-0.5 - 0.75], [0.5 + 0.25]]


def test_candidates_without_continuation_are_no_failures():
    ways = (walk("sb ua tg", success=True), walk("ud sa"))
    before = collate([Group(0, ways)], edges={0: SIX})
    more = [*SIX, *[edge(f"s{one}", f"{one}") for one in "01234567"], edge("tq", "y")]
    after = collate([Group(0, ways)], edges={0: more})
    assert torch.equal(graph(before), graph(after))
    # As soon as one is played to an end without success, it is a failure.
    seen = collate([Group(0, ways)], edges={0: [*more, edge("0e", "z", END)]})
    assert not torch.equal(graph(before), graph(seen))


def test_uncertain_moves_are_worth_the_mean_of_what_they_led_to():
    # In s, a leads to the goal twice, once to an end, once nowhere known; b certainly, but by t. Q(s, a) = 2/3 w.
    tried = [edge("sa", "g", GOAL)] * 2
    tried += [edge("sa", "z", END), edge("sa", "x"), edge("sb", "t"), edge("tc", "g", GOAL)]
    third = 2 / 3
    assert valued(tried, w=0.9) == pytest.approx([0.6, 0.6, 0.6, None, 0.81, 0.9])
    assert valued(tried, w=0.5)[0] == pytest.approx(third / 2)
    # With w = 1/2 the risk is worth it: a has 1/3 and b 1/4.
    batch = collate([Group(0, (walk("sa"), walk("sb")))], edges={0: tried})
    risky, safe = by_turn(batch, graph(batch, w=0.5, scale="none"))
    shares = [1, 1, 1, 0.75]
    assert (risky, safe) == (pytest.approx([1 - mean(shares)]), pytest.approx([0.75 - mean(shares)]))


def test_moves_do_not_differ_without_a_success():
    failures = [Group(0, (walk("sa tb"), walk("sb uc")))]
    batch = collate(failures, edges={0: [edge("sa", "t"), edge("tb", "z", END), edge("sb", "u"), edge("uc", "z", END)]})
    assert not graph(batch).any()
    assert not graph(collate(failures)).any()
    nowhere = batch_of([path((-1, 1.0)), path((-1, 0.0))])
    assert torch.equal(graph(nowhere), grpo(nowhere))
    # States and moves of other groups are others.
    won, lost = walk("sa", success=True), walk("sb")
    assert not graph(batch_of([won, won], [lost, lost])).any()


def test_trajectories_alone_make_a_graph_where_there_are_no_trees():
    ways = [walk("sa tg", success=True), walk("sb ua td"), walk("sb ve")]
    batch = batch_of(ways)
    tried = [edge("sa", "t"), edge("tg", None, GOAL), edge("sb", "u"), edge("ua", "t"), edge("td", None, END)]
    tried += [edge("sb", "v"), edge("ve", None, END)]
    assert edges_along(ways) == tried
    assert torch.equal(graph(batch), graph(collate([Group(0, tuple(ways))], edges={0: tried})))
    # In t, which the second reaches too, g succeeds and d ends: the failure learns more there than elsewhere.
    _, second, third = by_turn(batch, graph(batch, scale="none"))
    assert second[2] == pytest.approx(-1 / 3 - 0.5)
    assert third[1] == pytest.approx(-1 / 3)


# What follows are oracles that know nothing of tensors.
def random_edges(seed, *, chance):
    """Return edges of a random task, whose moves lead anywhere if there is `chance`."""
    rng = np.random.default_rng(seed)
    states = "stuvxy"
    leads = {f"{state}{action}": rng.integers(0, 9) for state in states for action in "ab"}
    actual = []
    for move in rng.choice(list(leads), size=18):
        to = rng.integers(0, 9) if chance else leads[move]
        ends = {6: ("g", GOAL), 7: ("z", END), 8: ("w", OPEN)}
        after, kind = ends.get(int(to), (states[to % 6], OPEN))
        actual.append(edge(str(move), after, kind))
    return actual


def known_by_hand(edges):
    """Return the states from which some path of edges comes to an end, by walking every path."""

    def comes_to_an_end(state, passed):
        return any(
            one.ended or (one.after not in passed and comes_to_an_end(one.after, passed | {state}))
            for one in edges
            if one.state == state
        )

    return {one.state for one in edges if comes_to_an_end(one.state, set())}


@pytest.mark.parametrize("seed", seeds(6, 25))
def test_without_chance_values_are_those_of_the_shortest_of_all_paths(seed):
    edges = random_edges(seed, chance=False)

    def distance(state, passed):
        """The fewest moves to a success over all paths without repetition."""
        ways = [
            1 if one.solved else 1 + distance(one.after, passed | {state})
            for one in edges
            if one.state == state and (one.solved or one.after not in passed | {state})
        ]
        return min(ways, default=inf)

    seen = known_by_hand(edges)
    wanted = [
        (0.3 if one.solved else 0.3 ** (1 + distance(one.after, set()))) if one.ended or one.after in seen else None
        for one in edges
    ]
    assert valued(edges, w=0.3) == pytest.approx(wanted)


@pytest.mark.parametrize("seed", seeds(6, 25))
def test_with_chance_values_are_those_of_the_best_of_all_policies(seed):
    edges, w = random_edges(seed, chance=True), 0.8
    seen = known_by_hand(edges)
    edges = [one for one in edges if one.ended or one.after in seen]
    tries = defaultdict(list)
    for one in edges:
        tries[one.state, one.action].append(one)
    states = sorted({one.state for one in edges})
    best = dict.fromkeys(states, 0.0)
    for policy in product(*[[action for state, action in tries if state == here] for here in states]):
        # V = w (P V + goals), solved at once for a policy that is fixed.
        step, goal = np.zeros((len(states), len(states))), np.zeros(len(states))
        for row, move in enumerate(zip(states, policy, strict=True)):
            for one in tries[move]:
                goal[row] += w * one.solved / len(tries[move])
                if one.after in states and not one.solved:
                    step[row, states.index(one.after)] += w / len(tries[move])
        value = np.linalg.solve(np.eye(len(states)) - step, goal)
        best = {state: max(best[state], value[row]) for row, state in enumerate(states)}
    wanted = [
        mean(w * (1.0 if to.solved else best.get(to.after, 0.0)) for to in tries[one.state, one.action])
        for one in edges
    ]
    assert valued(edges, w=w) == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("seed", seeds(4, 10))
def test_the_comparison_is_that_of_a_loop_over_states(seed):
    edges = random_edges(seed, chance=seed % 2 == 0)
    moves = sorted({(one.state.decode(), one.action) for one in edges})
    batch = collate([Group(0, tuple(walk(f"{state}{action}") for state, action in moves))], edges={0: edges})
    actual = by_turn(batch, graph(batch, w=0.6))
    values = valued(edges, w=0.6)
    for (state, action), turns in zip(moves, actual, strict=True):
        here = [(one, value) for one, value in zip(edges, values, strict=True) if one.state.decode() == state]
        seen = [(one.action, value) for one, value in here if value is not None]
        own, wanted = [value for one, value in seen if one == action], 0.0
        top = max((value for _, value in seen), default=0.0)
        if own and len(seen) > 1 and top > 0 and len({value for _, value in seen}) > 1:
            shares = [value / top for _, value in seen]
            wanted = (own[0] / top - mean(shares)) / (stdev(shares) + 1e-6)
        assert turns == pytest.approx([wanted], abs=1e-5)


def grown(strategy, says):
    """Return a tree of letters: k succeeds, the word z is a proven failure, and words of 3 letters are too long."""
    env = letters({"o": 0.0, "a": 0.0, "k": 1.0, "b": -1.0, "z": -1.0}, ends="k", turns=3, dead=("z",))

    def policy(requests):
        scripted = Script(says)(requests)
        return [[Candidate(one.text, (1,), (ord(one.text),), (-1.0,)) for one in answers] for answers in scripted]

    return search([env], policy, strategy, seeds=[1])[0]


def test_edges_of_a_tree_hold_every_candidate_and_how_it_ended():
    tree = grown(partial(beam, width=1, branching=3), {"": "ozb", "o": "kbb"})
    key = {node.observation: node.state_key for node in tree.nodes}
    assert harvest_edges([tree]) == [
        Edge(key[""], ("o",), key["o"], 1, False, False),
        Edge(key[""], ("z",), key["z"], 1, False, True),
        Edge(key[""], ("b",), key["b"], 1, False, False),
        Edge(key["o"], ("k",), key["ok"], 1, True, True),
        Edge(key["o"], ("b",), key["ob"], 1, False, False),
        Edge(key["o"], ("b",), key["ob"], 1, False, False),
    ]


def test_a_factor_that_is_none_and_a_batch_without_edges_are_refused():
    for w in (0.0, -1.0, 1.5):
        with pytest.raises(ValueError, match="wanted 0 < w <= 1"):
            graph(batch_of([walk("sa")]), w=w)
    with pytest.raises(ValueError, match="wanted a batch with edges"):
        graph(replace(batch_of([walk("sa")]), edges=None))
