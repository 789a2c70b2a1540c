"""Nodes per second of the search over objects, against a searcher that resets and replays, on the same actions."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.measure import Work, alternate, insist
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.strategies import beam
from tsr_gym.errors import TsrGymError
from tsr_gym.tree import Candidate, Expand, Policy, Tree
from tsr_gym.wrappers import AnswerFormat, FrozenLakeScore, SokobanScore, TreeSearchWrapper

FORM = "<think></think><answer>{}</answer>"
# Prime, so that siblings seldom say the same.
NUM_SAYINGS = 997


def scripted(actions: Sequence[str], most: int) -> Policy:
    """Return a policy that says up to so many actions, from a table that it looks up by node and candidate."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, most + 1, size=NUM_SAYINGS)
    said = [" || ".join(actions[pick] for pick in rng.integers(len(actions), size=size)) for size in sizes]
    table = [Candidate(FORM.format(text)) for text in said]

    def policy(requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        return [
            [table[(wish.node * 31 + number * 7) % NUM_SAYINGS] for number in range(wish.samples)]
            for _, wish in requests
        ]

    return policy


def numbered(requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
    """Try the actions of a discrete space in order."""
    return [[Candidate(number) for number in range(wish.samples)] for _, wish in requests]


def replay(env: gym.Env[Any, Any], tree: Tree, seed: int, options: dict[str, Any] | None) -> list[Any]:
    """Return the outcome of every node of a tree, by a reset and the way to the node.

    Candidates of a node that say the same are played once, as in the search.
    """
    outcomes: list[Any] = [None]
    known: dict[tuple[int | None, Any], Any] = {}
    for index in range(1, len(tree.nodes)):
        node = tree.nodes[index]
        twin = (node.parent, node.candidate.text)
        if twin not in known:
            env.reset(seed=seed, options=options)
            for step in tree.path(index)[1:]:
                known[twin] = env.step(tree.nodes[step].candidate.text)
        outcomes.append(known[twin])
    return outcomes


def check(trees: Sequence[Tree], replayed: Sequence[Sequence[Any]], what: str) -> None:
    """Stop where a replay came to something else than the tree has."""
    for tree, outcomes in zip(trees, replayed, strict=True):
        for node, (observation, reward, terminated, truncated, info) in zip(tree.nodes[1:], outcomes[1:], strict=True):
            same = np.array_equal(node.observation, observation) and node.reward == reward
            same &= (node.terminated, node.truncated) == (terminated, truncated) and dict(node.info) == info
            insist(same, f"{what}: a replay came to {observation}, the tree has {node.observation}")


def measure(
    make: Callable[[], gym.Env[Any, Any]],
    policy: Policy,
    strategy: Any,
    *,
    tasks: int,
    rounds: int,
    options_of: Callable[[Any], dict[str, Any]] | None = None,
    noises: tuple[Any, ...] = ("same",),
) -> dict[str, Any]:
    """Return nodes per second of our search on each kind of dice, and of reset and replay on the episodes' own."""
    envs = [TreeSearchWrapper(make()) for _ in range(tasks)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)

    def ours(noise: Any) -> list[Tree]:
        return search(envs, policy, strategy, seeds=range(tasks), noise=noise)

    trees, bare = ours("same"), make()

    def theirs(options: Sequence[dict[str, Any] | None]) -> list[list[Any]]:
        return [replay(bare, tree, seed, options[seed]) for seed, tree in enumerate(trees)]

    plain: list[dict[str, Any] | None] = [None] * tasks
    check(trees, theirs(plain), str(bare))
    nodes = sum(len(tree.nodes) - 1 for tree in trees)
    works = {}
    for noise in noises:
        grown = sum(len(tree.nodes) - 1 for tree in ours(noise))
        works[f"ours, noise={noise!r}"] = Work(partial(ours, noise), grown, f"search(), {tasks} trees at once")
    how = "one environment, reset(seed), the way to each node"
    works["reset and replay"] = Work(partial(theirs, plain), nodes, how)
    if options_of is not None:
        given = [options_of(env.unwrapped) for env in envs]
        check(trees, theirs(given), f"{bare} with its level given")
        how = "the same with reset(options={'level': ...}), which spares it the generator"
        works["reset to a known level and replay"] = Work(partial(theirs, given), nodes, how)
    rates = alternate(works, rounds)
    first = rates[f"ours, noise={noises[0]!r}"]["median"]
    depth = sum(node.depth for tree in trees for node in tree.nodes) / nodes
    ratios = {name: first / rate["median"] for name, rate in rates.items() if "replay" in name}
    return {"nodes": nodes, "mean_depth": depth, "nodes_per_second": rates, "ours_to": ratios}


def sokoban(most: int) -> gym.Env[Any, Any]:
    """Return Sokoban in the full stack; with one action a turn, episodes have as many turns as actions."""
    limits: dict[str, Any] = {} if most > 1 else {"max_turns": 10, "max_actions_per_turn": 1}
    return SokobanScore(AnswerFormat(gym.make("tsr/Sokoban-v0", **limits)))


def lake() -> gym.Env[Any, Any]:
    """Return FrozenLake in the full stack."""
    return FrozenLakeScore(AnswerFormat(gym.make("tsr/FrozenLake-v0")))


def text_rows(quick: bool) -> dict[str, Any]:
    """Return all rows; where an environment cannot be searched, why."""
    tasks, rounds = (8, 3) if quick else (64, 11)
    strategy = partial(beam, width=2, branching=4)
    pushes, slides = ("Up", "Down", "Left", "Right"), ("Left", "Down", "Right", "Up")
    sizes: dict[str, Any] = {"tasks": tasks, "rounds": rounds}
    rows = {
        f"Sokoban text, up to {most} actions a turn": measure(
            partial(sokoban, most),
            scripted(pushes, most),
            strategy,
            options_of=lambda base: {"level": base.state.to_xsb()},
            noises=("fresh",),
            **sizes,
        )
        for most in (1, 5)
    }
    rows["FrozenLake text, up to 2 actions a turn"] = measure(
        lake, scripted(slides, 2), strategy, noises=("same", "fresh"), **sizes
    )
    try:
        rows["CartPole, by deepcopy"] = measure(
            lambda: gym.make("CartPole-v1"), numbered, partial(beam, width=2, branching=2, depth=20), **sizes
        )
    except TsrGymError as error:
        rows["CartPole, by deepcopy"] = {"not run": str(error)}
    return rows
