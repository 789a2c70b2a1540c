"""Search: one call of the policy per round for all trees, and trees that depend on nothing but their seeds."""

from dataclasses import replace
from functools import partial
from hashlib import blake2b

import gymnasium as gym
import pytest

from tests.agents.worlds import WALKER, Script, lake, letters, picture, rooms
from tests.conftest import run_python
from tsr_gym import Budget, Candidate, Expand
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies import (
    adaptive,
    beam,
    best_first,
    best_of_n,
    greedy,
    lookahead,
    naive,
    puct,
    random_branching,
)
from tsr_gym.wrappers import AnswerFormat, TreeSearchWrapper

STRATEGIES = {
    "naive": partial(naive, rollouts=3),
    "best_of_n": partial(best_of_n, n=4),
    "greedy": partial(greedy, branching=3),
    "beam": partial(beam, width=2, branching=4),
    "lookahead": partial(lookahead, branching=3, depth=2),
    "random_branching": partial(random_branching, trees=2, nodes=2, rounds=2),
    "puct": partial(puct, simulations=6, parallel=2, rollout_turns=1),
    "best_first": partial(best_first, expansions=6, samples=2),
    "adaptive": partial(adaptive, max_rollouts=8),
}
WORLDS = {
    "FrozenLake": (lake, WALKER),
    "Sokoban": (rooms, RandomPolicy(("Up", "Down", "Left", "Right"), max_actions=4)),
}
SEEDS = range(50, 56)


def grown(world, strategy, seeds=SEEDS, workers=None):
    make, policy = WORLDS[world]
    envs = [make(seed) for seed in seeds]
    trees = search(envs, policy, STRATEGIES[strategy], seeds=seeds, workers=workers)
    return [(picture(tree), tree.chosen, replace(tree.spent, seconds=0.0, env_seconds=0.0)) for tree in trees]


def digest(world, strategy):
    """Return a fingerprint of six trees; called in other processes too."""
    return blake2b(repr(grown(world, strategy)).encode(), digest_size=8).hexdigest()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("world", WORLDS)
def test_trees_are_the_same_whether_grown_together_or_one_by_one(world, strategy):
    together = grown(world, strategy)
    alone = [tree for seed in SEEDS for tree in grown(world, strategy, [seed])]
    assert together == alone
    assert grown(world, strategy, list(reversed(SEEDS))) == together[::-1]
    assert len({repr(tree) for tree in together}) == len(together)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_trees_are_the_same_whether_searches_wait_for_each_other_or_not(strategy):
    waiting = grown("FrozenLake", strategy)
    assert [grown("FrozenLake", strategy, workers=workers) for workers in (1, 3, 20)] == [waiting] * 3


def test_trees_are_the_same_in_another_process_with_another_hash_seed():
    cases = [(world, strategy) for world in WORLDS for strategy in STRATEGIES]
    here = [digest(*case) for case in cases]
    code = f"from tests.agents.episodes.test_search import digest; print([digest(*case) for case in {cases!r}])"
    code = f"import sys; sys.path.insert(0, '.'); {code}"
    assert [run_python(code, hash_seed=seed).strip() for seed in ("1", "4242")] == [repr(here)] * 2


def test_a_round_asks_the_policy_once_for_the_wishes_of_all_searches():
    asked = []

    class Asked(Script):
        def __call__(self, requests):
            asked.append(len(requests))
            return super().__call__(requests)

    # Three words that end after one, two and three letters, two rollouts each.
    says = {"": "ab", "a": "x", "b": "x", "ax": "x", "bx": "x"}
    envs = [letters({"a": 0.0, "b": 0.0, "x": 1.0}, turns=turns, seed=turns) for turns in (1, 2, 3)]
    policy = Asked(says)
    search(envs, policy, partial(naive, rollouts=2), seeds=[1, 2, 3])
    assert (asked, policy.calls) == ([3, 4, 2], 3)


def test_what_a_search_spent_adds_up():
    def policy(requests):
        # Every node is expanded once.
        prompts = [(9,) * (tree.nodes[wish.node].depth + 1) for tree, wish in requests]
        return [[Candidate(letter, prompt, (8, 8)) for letter in "ab"] for prompt in prompts]

    env = letters({"a": 1.0, "b": 0.5}, turns=3)
    (tree,) = search([env], policy, partial(beam, width=2, branching=2), seeds=[0])
    # One node is expanded in the first round and two in each of the others, two candidates each: 10 nodes, two tokens;
    # prompts have one, two and three tokens: 2 + 8 + 12. A restore per sample, and one back to the cursor a round.
    assert len(tree.nodes) == 11
    counts = {"model_calls": 3, "sampled_tokens": 20, "prompt_tokens": 22, "env_steps": 10}
    assert tree.spent == Budget(**counts, restores=13, expansions=5)
    assert 0 < tree.spent.env_seconds < tree.spent.seconds


def always(text):
    return lambda requests: [[Candidate(text)] * wish.samples for _, wish in requests]


UP = always("<think></think><answer>Up</answer>")


@pytest.mark.parametrize(
    ("env", "noise", "steps"),
    [
        (rooms, "fresh", 1),
        (lake, "fresh", 30),
        (partial(lake, is_slippery=False), "fresh", 1),
        (lake, "common", 1),
        (lake, "same", 1),
    ],
    ids=["Sokoban", "slippery lake", "lake that is not slippery", "common dice", "same dice"],
)
def test_equal_actions_share_a_step_only_where_it_cannot_come_out_otherwise(env, noise, steps):
    (tree,) = search([env()], UP, lambda tree: iter([[Expand(tree.root, 30)]]), seeds=[5], noise=noise)
    assert (tree.about["noise"], tree.about["clairvoyant"]) == (noise, noise == "same")
    assert (len(tree.nodes), tree.spent.env_steps) == (31, steps)
    outcomes = {node.observation for node in tree.nodes[1:]}
    # Thirty throws at three equally likely directions; on one of them a wall may make two equal.
    assert len(outcomes) == 1 if steps == 1 else len(outcomes) >= 2


def test_with_the_same_dice_the_imagined_turn_is_the_one_that_is_played_and_with_others_it_is_not():
    def imagined_and_played(noise, seed):
        env = lake(seed)
        (tree,) = search([env], UP, lambda tree: iter([[Expand(tree.root)]]), seeds=[seed], noise=noise)
        return tree.nodes[1].observation, env.step("<think></think><answer>Up</answer>")[0]

    pairs = {noise: [imagined_and_played(noise, seed) for seed in range(40)] for noise in ("same", "fresh", "common")}
    assert all(imagined == played for imagined, played in pairs["same"])
    for noise in ("fresh", "common"):
        # Two throws of a die of three sides agree one time in three, more often at a wall.
        assert 5 <= sum(imagined != played for imagined, played in pairs[noise]) <= 35


def test_a_search_begins_where_the_environment_stands_or_at_a_reset_with_its_seed():
    env = TreeSearchWrapper(AnswerFormat(gym.make("tsr/Sokoban-v0")))
    (tree,) = search([env], UP, naive, seeds=[11])
    assert tree.nodes[0].observation == rooms(11).tree.nodes[0].observation
    assert tree.seed == 11
    env = letters({"a": 1.0, "b": 2.0}, turns=2)
    env.step("b")
    old = env.tree
    (tree,) = search([env], Script({"b": "a"}), naive, seeds=[3])
    assert tree is env.tree
    assert tree is not old
    assert [node.observation for node in tree.nodes] == ["b", "ba"]
    assert tree.nodes[1].truncated
    assert search([], UP, naive, seeds=[]) == []


@pytest.mark.parametrize(
    ("envs", "seeds", "message"),
    [(lambda: [rooms(), rooms()], [1], "got 1 seeds for 2"), (lambda: [rooms()] * 2, [1, 2], "got one twice")],
)
def test_every_search_needs_an_environment_and_a_seed_of_its_own(envs, seeds, message):
    with pytest.raises(ValueError, match=message):
        search(envs(), UP, naive, seeds=seeds)
