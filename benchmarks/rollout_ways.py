"""A beam rollout end to end, ours and as published code does it: the same trees, processor time of one process.

Ours keeps keys and values along the tree and restores the environment. Published rollouts (TRL's loop over
transformers' `generate`, RAGEN's over environments) compute every turn's prompts from their first tokens, once for each
sample, and come to a state by building the environment and replaying the episode. Here they are given the prompts of
our trees and the candidates to try, and have to see what the trees hold. Run: python -m benchmarks.rollout_ways
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import torch

from benchmarks.measure import write_result
from benchmarks.rollout_overhead import PLAYER, STRATEGY, TimedPolicy, check, make_stack, random_model, replay
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.search import search
from tsr_gym.tree import Candidate, Expand, Tree
from tsr_gym.wrappers import TreeSearchWrapper

TASKS, ROUNDS, MAX_TOKENS = 16, 3, 24


class Noted:
    """A policy that remembers the prompts of every round, once for each sample."""

    def __init__(self, asked: Any) -> None:
        self.asked = asked
        self.rounds: list[list[Sequence[int]]] = []

    def __call__(self, requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        """Return what is answered."""
        said: list[list[Candidate]] = self.asked(requests)
        self.rounds.append([one.prompt_ids for row in said for one in row])
        return said


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


def main() -> None:
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
        "prompt_tokens_mean": sum(len(prompt) for one in rounds for prompt in one) / sum(map(len, rounds)),
        "ours_seconds": ours,
        "generate_seconds": generate,
        "replay_seconds": replayed,
        "theirs_to_ours": median((theirs + again) / own for own, theirs, again in rows),
    }
    write_result("rollout_ways", numbers)


if __name__ == "__main__":
    main()
