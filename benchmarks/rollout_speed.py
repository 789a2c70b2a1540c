"""What a searched rollout costs in addition to the model, and how much faster it is than published rollouts.

- overhead: three ways to try a candidate at a node, on the same beam searches on Sokoban through the full stack (tree,
  scorer, answer format, Gymnasium's default wrappers): restoring a snapshot; rebuilding the environment and replaying
  the episode up to the node, as published code does; and deep-copying the environment. All three must give the same
  observations, rewards and ends before anything is timed. The same searches then run with language models, which gives
  the share of the time that is not the model's.
- ways: a beam rollout end to end. Ours keeps keys and values along the tree and restores the environment. Published
  rollouts (TRL's loop over transformers' `generate`, RAGEN's over environments) compute every turn's prompts from their
  first tokens, once per sample, and reach a state by building the environment and replaying the episode. They get the
  prompts and candidates of our trees, and must reproduce what the trees hold. Processor time of one process.

Run: python -m benchmarks.rollout_speed [overhead] [ways]
"""

import copy
import gc
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import gymnasium as gym
import torch

import tsr_gym
from benchmarks.measure import run_parts, run_timed, write_result
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.models.language_model import LanguageModel, load_policy
from tsr_gym.agents.models.settings import ModelCard, ModelConfig
from tsr_gym.agents.models.tiny_model import tiny_model
from tsr_gym.agents.models.tokenizer import tiny_tokenizer
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies import beam
from tsr_gym.agents.teaching.base_model import default_model
from tsr_gym.tree import Candidate, Expand, Tree
from tsr_gym.wrappers import AnswerFormat, SokobanScore, TreeSearchWrapper

TASKS = 64
ROUNDS = 7
STRATEGY = partial(beam, width=2, branching=4)
PLAYER = RandomPolicy(("Up", "Down", "Left", "Right"), max_actions=5)


class TimedPolicy:
    """A policy that asks a language model, lets random play decide, and keeps the time.

    Answers of a model with random weights have no effect, and an environment in which nothing happens would be
    too cheap.
    """

    def __init__(self, asked: Any = None, form: str = "<think></think><answer>{}</answer>") -> None:
        self.asked = asked
        self.player = RandomPolicy(PLAYER.actions, PLAYER.max_actions, form)
        self.seconds = 0.0
        self.prompt_tokens: list[int] = []

    def __call__(self, requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        """Return random turns, with the tokens that the model sampled."""
        started = process_time()
        played = self.player(requests)
        sampled = self.asked(requests) if self.asked is not None else played
        self.prompt_tokens += [len(row[0].prompt_ids) for row in sampled]
        answers = [
            [model._replace(text=turn.text) for model, turn in zip(*rows, strict=True)]
            for rows in zip(sampled, played, strict=True)
        ]
        self.seconds += process_time() - started
        return answers


def make_stack(think: bool = True, obs_type: str = "grid") -> gym.Env[Any, Any]:
    """Return the environment as a search wraps it, without the tree."""
    return SokobanScore(AnswerFormat(gym.make("tsr/Sokoban-v0", obs_type=obs_type), think=think))


def grow_trees(envs: Sequence[TreeSearchWrapper], policy: TimedPolicy) -> tuple[float, list[Tree]]:
    """Return the seconds that were not the policy's, and the trees."""
    policy.seconds = 0.0
    started = process_time()
    trees = search(envs, policy, STRATEGY, seeds=range(len(envs)))
    return process_time() - started - policy.seconds, trees


def replay(tree: Tree, node: int, seed: int) -> tuple[Any, ...]:
    """Try a node's candidate as published code does: build, reset, replay the past, step."""
    env = make_stack()
    env.reset(seed=seed)
    result: Any = None
    for index in tree.path(node)[1:]:
        result = env.step(tree.nodes[index].candidate.text)
    return tuple(result)


def by_deepcopy(parents: dict[int, gym.Env[Any, Any]], tree: Tree, node: int) -> tuple[Any, ...]:
    """Try a node's candidate on a deep copy of its parent's environment, which is then the node's own."""
    parent = tree.nodes[node].parent
    assert parent is not None
    env = copy.deepcopy(parents[parent])
    parents[node] = env
    return tuple(env.step(tree.nodes[node].candidate.text))


def compare_drivers() -> dict[str, Any]:
    """Return microseconds per expanded node of the three drivers, after checking that they agree."""
    envs = [TreeSearchWrapper(make_stack()) for _ in range(TASKS)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    policy = TimedPolicy()
    _, trees = grow_trees(envs, policy)
    nodes = [(seed, tree, node) for seed, tree in enumerate(trees) for node in range(1, len(tree.nodes))]
    for seed, tree, node in nodes:
        check(tree, node, replay(tree, node, seed))
    gc.collect()
    gc.freeze()
    restored = [grow_trees(envs, policy)[0] / len(nodes) for _ in range(ROUNDS)]
    replayed: dict[int, list[float]] = {}
    for seed, tree, node in nodes[::10]:
        started = process_time()
        replay(tree, node, seed)
        past = sum(len(tree.nodes[index].info["executed"]) for index in tree.path(node)[1:-1])
        replayed.setdefault(min(past // 4 * 4, 8), []).append(process_time() - started)
    copied = []
    for seed, tree in enumerate(trees[:8]):
        root = make_stack()
        root.reset(seed=seed)
        parents = {0: root}
        for node in range(1, len(tree.nodes)):
            started = process_time()
            result = by_deepcopy(parents, tree, node)
            copied.append(process_time() - started)
            check(tree, node, result)
    everything = [second for seconds in replayed.values() for second in seconds]
    return {
        "expanded_nodes": len(nodes),
        "restore_us_per_node": {
            "median": 1e6 * median(restored),
            "min": 1e6 * min(restored),
            "max": 1e6 * max(restored),
        },
        "replay_us_per_node": {
            "median": 1e6 * median(everything),
            "by_past_actions": {f"{past}+": 1e6 * median(seconds) for past, seconds in sorted(replayed.items())},
        },
        "deepcopy_us_per_node": {"median": 1e6 * median(copied)},
        "replay_to_restore": median(everything) / median(restored),
        "deepcopy_to_restore": median(copied) / median(restored),
    }


def check(tree: Tree, node: int, result: tuple[Any, ...]) -> None:
    """Stop where a driver saw something else than the tree."""
    expected = tree.nodes[node]
    wanted = (expected.observation, expected.reward, expected.terminated, expected.truncated, expected.info)
    if result != wanted:
        raise SystemExit(f"node {node}: a driver got {result}, the tree has {wanted}")


def snapshot_against_deepcopy() -> dict[str, float]:
    """Return microseconds of a snapshot and restore through `gym.make`'s default stack, and of deep-copying it."""
    env = gym.make("tsr/Sokoban-v0")
    env.reset(seed=0)

    def both() -> None:
        tsr_gym.restore(env, tsr_gym.snapshot(env))

    ours, theirs = per_call(both, 2000), per_call(lambda: copy.deepcopy(env), 50)
    return {"snapshot_restore_us": 1e6 * ours, "deepcopy_us": 1e6 * theirs, "deepcopy_to_ours": theirs / ours}


def per_call(work: Any, number: int) -> float:
    """Return the median over rounds of the mean seconds of a call."""
    rounds = []
    for _ in range(ROUNDS):
        started = process_time()
        for _ in range(number):
            work()
        rounds.append((process_time() - started) / number)
    return median(rounds)


def share_beside(player: ModelPlayer, form: str, *, think: bool, obs_type: str) -> dict[str, float]:
    """Return how much of a rollout's time is not the model's."""
    envs = [TreeSearchWrapper(make_stack(think, obs_type)) for _ in range(16)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    base: Any = envs[0].unwrapped
    policy = TimedPolicy(player.chat(base.instructions, temperature=1.0), form)
    shares, totals = [], []
    for _ in range(3):
        beside, trees = grow_trees(envs, policy)
        shares.append(beside / (beside + policy.seconds))
        totals.append((beside + policy.seconds) / sum(len(tree.nodes) - 1 for tree in trees))
    tokens = policy.prompt_tokens
    return {
        "share": median(shares),
        "us_per_node": 1e6 * median(totals),
        "prompt_tokens_mean": sum(tokens) / len(tokens),
        "prompt_tokens_min": min(tokens),
    }


def random_model(folder: Path) -> ModelPlayer:
    """Return a random model of width 128 with 2 layers, the paper's prompt and full history."""
    base: Any = gym.make("tsr/Sokoban-v0").unwrapped
    words = base.instructions + " You are a helpful assistant. Turn State Reward Always answer in the form 0123456789"
    tokenizer = tiny_tokenizer(
        [words, "think answer your reasoning actions and write nothing else Use at most tokens have left"]
    )
    model = tiny_model(tokenizer, hidden=128, layers=2, context=2048)
    card = ModelCard(prompt="paper", history="full", max_tokens=24)
    return ModelPlayer("sokoban", TaskConfig(), ModelConfig(), LanguageModel(model, tokenizer, card))


def measure_overhead() -> None:
    """Measure, and write results/rollout_overhead.json."""
    torch.set_num_threads(1)
    numbers: dict[str, Any] = {"drivers": compare_drivers(), "default_stack": snapshot_against_deepcopy()}
    with TemporaryDirectory() as folder:
        wide = random_model(Path(folder))
        numbers["share_beside_h128_2_layers_paper_prompt"] = share_beside(
            wide, "<think></think><answer>{}</answer>", think=True, obs_type="grid"
        )
    own = load_policy(default_model("sokoban"), device=torch.device("cpu"))
    small = ModelPlayer("sokoban", TaskConfig(), ModelConfig(), own)
    numbers["share_beside_embedded_model_compact_prompt"] = share_beside(
        small, "<answer>{}</answer>", think=False, obs_type="compact"
    )
    write_result("rollout_overhead", numbers)


TASKS, ROUNDS, MAX_TOKENS = 16, 3, 24


class Noted:
    """A policy that remembers the prompts of every round, once for each sample."""

    def __init__(self, asked: Any) -> None:
        self.asked = asked
        self.rounds: list[list[Sequence[int]]] = []

    def __call__(self, requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        """Return the answers of the policy."""
        answers: list[list[Candidate]] = self.asked(requests)
        self.rounds.append([candidate.prompt_ids for row in answers for candidate in row])
        return answers


def by_us(player: ModelPlayer) -> tuple[float, list[Tree], list[list[Sequence[int]]]]:
    """Return seconds, the trees, and the prompts of every round."""
    envs = [TreeSearchWrapper(make_stack()) for _ in range(TASKS)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    base: Any = envs[0].unwrapped
    policy = Noted(TimedPolicy(player.chat(base.instructions, temperature=1.0)))
    started = process_time()
    trees = search(envs, policy, STRATEGY, seeds=range(TASKS))
    return process_time() - started, trees, policy.rounds


def by_generate(model: Any, rounds: Sequence[Sequence[Sequence[int]]]) -> float:
    """Return seconds of answering every sample's prompt from its first token, a batch a round."""
    started = process_time()
    for prompts in rounds:
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        model.generate(ids, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=MAX_TOKENS, pad_token_id=0)
    return process_time() - started


def by_replay(trees: Sequence[Tree]) -> float:
    """Return seconds of trying every candidate in an environment that replays the episode before it."""
    taken = 0.0
    for seed, tree in enumerate(trees):
        for node in range(1, len(tree.nodes)):
            started = process_time()
            result = replay(tree, node, seed)
            taken += process_time() - started
            check(tree, node, result)
    return taken


def measure_ways() -> None:
    """Measure, and write results/rollout_ways.json."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        player = random_model(Path(folder))
    model = player.policy.model.eval()
    rows = []
    for _ in range(ROUNDS):
        ours, trees, rounds = by_us(player)
        rows.append((ours, by_generate(model, rounds), by_replay(trees)))
    ours, generate, replayed = (median(column) for column in zip(*rows, strict=True))
    numbers = {
        "measured": "processor seconds of one process on one thread, medians of three rounds in turns",
        "setting": {
            "rooms": TASKS,
            "strategy": "beam(width=2, branching=4)",
            "model": "random weights, width 128, 2 layers; the paper's prompt, full history",
            "player": f"at random, at most {PLAYER.max_actions} moves a turn",
            "max_tokens": MAX_TOKENS,
        },
        "turns": len(rounds),
        "samples": sum(map(len, rounds)),
        "prompt_tokens_mean": sum(len(prompt) for prompts in rounds for prompt in prompts) / sum(map(len, rounds)),
        "ours_seconds": ours,
        "generate_seconds": generate,
        "replay_seconds": replayed,
        "theirs_to_ours": median((theirs + again) / own for own, theirs, again in rows),
    }
    write_result("rollout_ways", numbers)


PARTS = {"overhead": measure_overhead, "ways": measure_ways}

if __name__ == "__main__":
    run_timed(lambda: run_parts(PARTS, sys.argv[1:]))
