"""The loop that grows trees: rounds, promises that are broken, limits, raters, and searches that do not wait."""

import math
from functools import partial
from threading import Event, Lock
from time import sleep

import gymnasium as gym
import pytest

from tests.tsr_gym.testing.worlds import Walk
from tests.wrappers.test_tree_search import ICE, candidates, lake, walk
from tsr_gym import Budget, Candidate, ConfigError, Expand, Limits, TsrGymError
from tsr_gym.wrappers import TreeSearchWrapper
from tsr_gym.wrappers.grow import grow


def scripted(requests):
    """Answer Right and Left in turn, by the number of children that a node has."""
    return [
        [
            Candidate(("Right", "Left")[(len(tree.children(wish.node)) + k) % 2], (1, 2), (3,))
            for k in range(wish.samples)
        ]
        for tree, wish in requests
    ]


def wide(tree, *, width):
    yield [Expand(tree.root, width)]
    yield [Expand(child) for child in tree.open_leaves()]


def test_a_search_grows_the_tree_below_the_cursor_and_stays_there():
    env = walk()
    env.step("Right")
    view = env.search(scripted, partial(wide, width=2))
    assert (view.root, env.cursor) == (1, 1)
    assert [env.tree.nodes[index].candidate.text for index in view.children(1)] == ["Right", "Left"]
    assert [len(view.children(index)) for index in view.children(1)] == [1, 1]
    # Two rounds; two and two samples, each of one token and conditioned on two.
    assert env.tree.spent == Budget(
        model_calls=2, sampled_tokens=4, prompt_tokens=8, env_steps=5, restores=6, expansions=3
    )


def test_all_searches_share_one_call_per_round_and_one_that_ends_early_lets_the_others_go_on():
    calls = []

    def counting(requests):
        calls.append([(id(tree._store), wish) for tree, wish in requests])
        return scripted(requests)

    envs = [walk(), walk(), walk()]
    for number, env in enumerate(envs):
        env.reset(seed=number)
    running = []
    grow(envs, counting, partial(wide, width=3), watch=running.append)
    assert ([len(call) for call in calls], running) == ([3, 9], [3, 0])
    alone = walk()
    alone.reset(seed=1)
    alone.search(scripted, partial(wide, width=3))
    assert [n.snapshot for n in alone.tree.nodes] == [n.snapshot for n in envs[1].tree.nodes]

    def short(tree):
        yield [Expand(tree.root)]
        if tree.seed == 1:
            return
        yield [Expand(tree.root)]

    envs = [walk(), walk()]
    for number, env in enumerate(envs):
        env.reset(seed=number)
    grow(envs, scripted, short)
    assert [len(env.tree.nodes) for env in envs] == [3, 2]


def greedy(tree):
    yield [Expand(tree.root, 2)]


def test_a_rollout_plays_the_best_imagined_path_on_the_episodes_own_dice():
    env = lake(max_turns=3, max_actions_per_turn=1)

    def policy(requests):
        return [candidates("Up", "Down")[: wish.samples] for _, wish in requests]

    tree = env.rollout(policy, greedy)
    played = [tree.nodes[index] for index in tree.played]
    assert played[-1].done
    assert env.cursor == tree.played[-1]
    twin = gym.make("tsr/FrozenLake-v0", desc=ICE, max_turns=3, max_actions_per_turn=1)
    twin.reset(seed=3)
    for node in played[1:]:
        assert twin.step(node.candidate.text)[0] == node.observation
    env = walk(limits=Limits(max_turns=4))

    def policy(requests):
        return [candidates("Left", "Right || Right || Right")[: wish.samples] for _, wish in requests]

    tree = env.rollout(policy, greedy)
    # Every action costs 0.1, so one Left is dearer than nothing but cheaper than three Rights.
    assert [tree.nodes[index].candidate.text for index in tree.played][1:] == ["Left"] * 4


@pytest.mark.parametrize(
    ("strategy", "policy", "message"),
    [
        (lambda tree: iter(()), scripted, "expanded nothing at node 0"),
        (lambda tree: iter([[]]), scripted, r"test_grow:.* yielded \[\]: let it return"),
        (lambda tree: None, scripted, r"wanted the strategy .*test_grow:.* as a generator, it returned None"),
        (lambda tree: iter([Expand(0)]), scripted, r"test_grow:.* yielded Expand.*: wanted a list of Expand"),
        (lambda tree: iter([[0]]), scripted, r"test_grow:.* yielded \[0\]: wanted a list of Expand"),
        (lambda tree: iter([[Expand(7)]]), scripted, r"test_grow:.* wanted a node from 0 to 0, got 7"),
        (lambda tree: iter([[Expand(0, 0)]]), scripted, r"test_grow:.* wanted samples as a whole number >= 1, got 0"),
        (lambda tree: iter([[Expand(0, 2.0)]]), scripted, r"test_grow:.* wanted samples as a whole number"),
        (lambda tree: returns("best"), scripted, r"test_grow:.* returned 'best': wanted the nodes"),
        (lambda tree: returns([99]), scripted, r"test_grow:.* returned \[99\]: wanted the nodes"),
        (greedy, lambda requests: [candidates("Left")], r"asked for \[2\] candidates and gave \[1\]"),
        (greedy, lambda requests: [], r"asked for \[2\] candidates and gave \[\]"),
    ],
)
def test_a_strategy_or_policy_that_breaks_its_promise_is_named(strategy, policy, message):
    with pytest.raises(TsrGymError, match=message):
        walk().rollout(policy, strategy)


def test_a_node_that_ends_its_episode_is_not_asked_about():
    env = walk(limits=Limits(max_turns=1))
    with pytest.raises(TsrGymError, match=r"yielded .*Expand\(node=1, samples=1\).*: node 1 ends its episode"):
        env.search(scripted, lambda tree: iter([[Expand(0)], [Expand(1)]]))


def returns(ends):
    yield [Expand(0)]
    return ends


def three_rounds(tree):
    for _ in range(3):
        yield [Expand(leaf, 2) for leaf in tree.open_leaves()]


@pytest.mark.parametrize(
    ("limit", "rounds"),
    [
        (Budget(), 3), (Budget(model_calls=1), 1), (Budget(sampled_tokens=3), 2), (Budget(env_steps=6), 2),
        (Budget(env_steps=7), 3), (Budget(restores=1), 1), (Budget(env_steps=99, prompt_tokens=4), 1),
    ],
)  # fmt: skip
def test_a_limit_ends_a_search_between_rounds(limit, rounds):
    # Rounds of two, four and eight samples, each of one token after two.
    env = walk()
    env.search(scripted, three_rounds, limit=limit)
    assert env.tree.spent.model_calls == rounds
    assert len(env.tree.nodes) == 2 ** (rounds + 1) - 1


def test_a_limit_counts_from_where_its_search_began():
    env = walk()
    env.search(scripted, three_rounds)
    env.goto(1)
    before = env.tree.spent
    env.search(scripted, lambda tree: iter([[Expand(1)], [Expand(1)], [Expand(1)]]), limit=Budget(model_calls=2))
    assert (env.tree.spent - before).model_calls == 2


class Clock:
    """A clock that only moves during waits, in place of the one that the search reads."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        for module in ("grow", "tree_search", "imagine"):
            monkeypatch.setattr(f"tsr_gym.wrappers.{module}.perf_counter", lambda: self.now)

    def slow(self, answers, seconds):
        """Return a policy or rater that takes a while."""

        def waits(asked):
            self.now += seconds
            return answers(asked)

        return waits


def test_seconds_of_policy_and_rater_count_and_limit_a_search(monkeypatch):
    clock = Clock(monkeypatch)
    policy, rater = clock.slow(scripted, 0.25), clock.slow(lambda grown: [0.0] * len(grown), 0.5)
    env = walk()
    env.search(policy, three_rounds)
    assert (env.tree.spent.seconds, env.tree.spent.env_seconds) == (0.75, 0.0)
    env.reset(seed=3)
    env.search(policy, three_rounds, rater=rater)
    assert env.tree.spent.seconds == 3 * 0.75
    policy = Clock(monkeypatch).slow(scripted, 0.25)
    for seconds, rounds in ((0.2, 1), (0.5, 2), (0.6, 3)):
        env = walk()
        env.search(policy, three_rounds, limit=Budget(seconds=seconds))
        assert (env.tree.spent.model_calls, env.tree.spent.seconds) == (rounds, 0.25 * rounds)


@pytest.mark.parametrize("workers", [None, 1])
def test_searches_pay_for_a_shared_call_by_the_candidates_that_they_wanted(monkeypatch, workers):
    policy = Clock(monkeypatch).slow(scripted, 1.0)
    envs = [walk(), walk()]
    for number, env in enumerate(envs):
        env.reset(seed=number)

    def by_seed(tree):
        yield [Expand(tree.root, 1 + 2 * tree.seed)]
        if tree.seed:
            yield [Expand(tree.root)]

    grow(envs, policy, by_seed, workers=workers)
    # The first call answered one candidate and three; the second one the second search alone.
    assert [env.tree.spent.seconds for env in envs] == [0.25, 1.75]


def test_what_a_strategy_returns_is_what_was_chosen_and_played():
    def second(tree):
        yield [Expand(tree.root, 2)]
        return [tree.children(tree.root)[1]]

    env = walk(limits=Limits(max_turns=3))
    tree = env.search(scripted, second)
    assert list(tree.chosen) == [2]
    env.search(scripted, lambda tree: iter([[Expand(0)]]))
    assert list(env.tree.chosen) == []
    env.reset(seed=3)
    played = env.rollout(scripted, second)
    # Left costs as much as Right, so a search that chose nothing would play either.
    assert [played.nodes[index].candidate.text for index in played.played][1:] == ["Left"] * 3


def test_a_rater_scores_all_that_grew_in_a_round_in_one_call():
    asked = []

    def rater(grown):
        asked.append([(tree.seed, node) for tree, node in grown])
        return [100.0 * tree.seed + node for tree, node in grown]

    envs = [walk(), walk()]
    for number, env in enumerate(envs):
        env.reset(seed=number)
    grow(envs, scripted, partial(wide, width=2), rater=rater)
    assert asked == [[(0, 1), (0, 2), (1, 1), (1, 2)], [(0, 3), (0, 4), (1, 3), (1, 4)]]
    tree = envs[1].tree
    assert [tree.nodes[index].score for index in range(1, 5)] == [101.0, 102.0, 103.0, 104.0]
    assert (tree.total(4, "score"), tree.nodes[1].reward) == (206.0, pytest.approx(-0.1))


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([0.0], r"test_grow:.* was asked for 2 scores and gave \[0\.0\]"),
        (None, r"test_grow:.* was asked for 2 scores and gave None"),
        ([0.0, math.nan], r"the score of node 2 by tests.wrappers.test_grow:.* as a finite number, got nan"),
        ([0.0, "5"], r"the score of node 2 by tests.wrappers.test_grow:.* as a finite number, got '5'"),
    ],
)
def test_a_rater_that_breaks_its_promise_is_named(scores, message):
    with pytest.raises(TsrGymError, match=message):
        walk().search(scripted, partial(wide, width=2), rater=lambda grown: scores)


def waits_for(seconds):
    """Return a policy that takes longer for some trees than for others, and notes how many calls ran at a time."""
    running, most, lock = [0], [0], Lock()

    def policy(requests):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        sleep(max(seconds[tree.seed] for tree, _ in requests))
        with lock:
            running[0] -= 1
        return scripted(requests)

    return policy, most


@pytest.mark.parametrize("workers", [1, 2, 5, 20])
def test_searches_that_do_not_wait_for_each_other_grow_the_same_trees(workers):
    def grown(workers, policy):
        envs = [walk() for _ in range(7)]
        for number, env in enumerate(envs):
            env.reset(seed=number)
        grow(envs, policy, three_rounds, workers=workers)
        return [([node.snapshot for node in env.tree.nodes], env.tree.spent) for env in envs]

    policy, most = waits_for([0.02, 0.0, 0.01, 0.0, 0.005, 0.0, 0.015])
    assert grown(workers, policy) == grown(None, scripted)
    assert most[0] <= workers


def test_no_search_waits_for_the_slowest():
    # The slow tree's first answer comes only after the fast one has had all of its three.
    finished, asked = Event(), []

    def policy(requests):
        ((tree, _), *_) = requests
        if tree.seed == 0:
            assert finished.wait(timeout=20)
        asked.append(tree.seed)
        if asked == [1, 1, 1]:
            finished.set()
        return scripted(requests)

    envs = [walk(), walk()]
    for number, env in enumerate(envs):
        env.reset(seed=number)
    grow(envs, policy, three_rounds, workers=2)
    assert asked == [1, 1, 1, 0, 0, 0]


def test_an_error_of_the_policy_reaches_the_caller_from_its_thread():
    def policy(requests):
        raise OSError("the server is down")

    with pytest.raises(OSError, match="the server is down"):
        grow([walk()], policy, three_rounds, workers=3)
    with pytest.raises(ConfigError, match="wanted workers as a whole number >= 1"):
        grow([walk()], scripted, partial(wide, width=2), workers=1.5)


def test_an_episode_that_is_proven_lost_is_over():
    class Marked(gym.Wrapper):
        """Mark what lies left of the start as lost."""

        def step(self, action):
            *result, info = self.env.step(action)
            lost = self.unwrapped.state.position < 0
            return *result, info | ({"dead_end": "left of the start"} if lost else {})

        def wrapper_state(self):
            return None

        def set_wrapper_state(self, state):
            pass

    def left_and_left_again(tree):
        yield [Expand(tree.root, 2)]
        return [tree.children(tree.root)[1]]

    env = TreeSearchWrapper(Marked(Walk(Limits(max_turns=9))))
    env.reset(seed=3)
    tree = env.rollout(scripted, left_and_left_again)
    assert [tree.nodes[index].candidate.text for index in tree.played][1:] == ["Left"]
    assert not tree.nodes[env.cursor].done
    # Where nothing is selected, lost paths are played last, regardless of their worth.
    env.reset(seed=3)
    assert env.rollout(scripted, greedy).nodes[1].candidate.text == "Right"
    assert all(env.tree.nodes[index].is_open for index in env.tree.played[:-1])
