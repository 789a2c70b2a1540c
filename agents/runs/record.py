"""The lines that a run writes about an update and an evaluation, and the advantages that it writes into saved trees.

Everything measured by a clock stands under ``seconds``; all else is the same in every repetition of a run.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, pstdev
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from tsr_gym.agents.config import RunConfig, TrainConfig
from tsr_gym.agents.episodes.collect import ChosenSearch, Collected
from tsr_gym.agents.episodes.play import Examined, HeldOut, summarise, summarise_examined
from tsr_gym.agents.episodes.trajectory import Group, Learned, Trajectory, keep_learned
from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.lessons.filters import Filtered
from tsr_gym.agents.runs.health import group_metrics, tree_metrics
from tsr_gym.agents.runs.progress import Progress
from tsr_gym.agents.strategies.order import Harvest
from tsr_gym.seeds import derive_seed

# Metrics of the learner; None in a record where the learner has none. The order is that of the record.
LEARNED = (
    *("policy_loss", "value_loss", "entropy", "clip_fraction", "grad_norm", "critic_grad_norm", "spikes", "skipped"),
    *("kl", "imitation_loss", "mismatch_kl", "mismatch_cut", "lr", "optimizer_steps", "guide_explained"),
)


def update_record(
    search: ChosenSearch,
    progress: Progress,
    collected: Collected,
    groups: Filtered,
    learned: Mapping[str, float | None],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """Return the line of an update; means over trajectories are None if there are no trajectories.

    Args:
        search: The search of the run.
        progress: Progress of the run after the update.
        collected: Groups and trees of the update.
        groups: Groups that were learned from.
        learned: Metrics of the learner; empty if no group was learned from.
        seconds: Seconds by activity.
    """
    played = [trajectory for group in collected.groups for trajectory in group.trajectories]
    summary = summarise(played) if played else None
    rewards = [trajectory.total_reward for trajectory in played]
    spent = collected.spent
    return {
        "step": progress.update,
        "search": search.name,
        "per_instance": search.words,
        "success": None if summary is None else summary.success,
        "reward_mean": fmean(rewards) if rewards else None,
        "reward_std": pstdev(rewards) if rewards else None,
        "response_length": None if summary is None else summary.response_length,
        "turns": None if summary is None else summary.turns,
        "valid": None if summary is None else summary.valid,
        "trajectories": len(played),
        "groups": len(collected.groups),
        "groups_kept": len(groups),
        "dropped": dict(groups.dropped),
        **collected.shares(),
        **group_metrics(collected.groups),
        **tree_metrics(tree for trees in collected.trees for tree in trees),
        "sampled_tokens": spent.sampled_tokens,
        "sampled_tokens_total": progress.sampled_tokens,
        "prompt_tokens": spent.prompt_tokens,
        "prompt_tokens_total": progress.prompt_tokens,
        "prompt_tokens_saved": spent.prompt_tokens_saved,
        "model_calls": collected.model_calls,
        "env_steps": spent.env_steps,
        "restores": spent.restores,
        **{name: learned.get(name) for name in LEARNED},
        "optimizer_steps_total": progress.optimizer_steps,
        "seconds": dict(seconds),
    }


def evaluation_record(
    instances: HeldOut, examine: Callable[[int], Examined], run: RunConfig, progress: Progress
) -> dict[str, Any]:
    """Play held-out instances and return the line of the evaluation.

    Args:
        instances: The held-out instances, with the success of the bars on them.
        examine: Plays all of them, given the seed of their samples and random numbers.
        run: Settings of the run, with its seed.
        progress: Progress of the run.
    """
    started = perf_counter()
    bars = instances.bars
    played = summarise_examined(examine(derive_seed(run.seed, progress.update)))
    return {
        "step": progress.update,
        "sampled_tokens_total": progress.sampled_tokens,
        "prompt_tokens_total": progress.prompt_tokens,
        **asdict(played),
        **asdict(bars),
        "seconds": {"evaluation": perf_counter() - started},
    }


def note_advantages(
    collected: Collected,
    groups: Sequence[Group],
    batch: Batch,
    advantages: Tensor,
    config: TrainConfig,
    search: ChosenSearch,
) -> None:
    """Write the advantages of the tokens into the trees that a run may save, node by node.

    Several trajectories can share a node, and get different advantages for its tokens: the node then has their mean.

    Args:
        collected: Groups and trees of the update.
        groups: Groups that were learned from, in the order in which `collate` took them.
        batch: The batch that `collate` made of these groups, on the CPU.
        advantages: `[B, T]`, as they went into the loss.
        config: Settings of the run.
        search: The search that grew the trees.
    """
    most = config.run.save_trees
    trees = {group.task: grown for group, grown in zip(collected.groups[:most], collected.trees[:most], strict=True)}
    advantages = advantages.cpu()
    by_tree: dict[tuple[int, int], dict[int, list[Tensor]]] = {
        (task, place): defaultdict(list) for task, grown in trees.items() for place in range(len(grown))
    }
    for number, task, trajectory in _numbered(groups):
        if task not in trees:
            continue
        nodes = by_tree[task, _place(trajectory, len(trees[task]), search.harvest)]
        # A trajectory has one row or, with prompts that do not grow, a row per turn.
        rows = (batch.trajectory == number).nonzero()[:, 0]
        for number_of_turn, turn in enumerate(trajectory.turns):
            if turn.token_ids and turn.node >= 0:
                nodes[turn.node].append(advantages[rows][batch.turn[rows] == number_of_turn])
    for (task, place), nodes in by_tree.items():
        means = {node: tuple(torch.stack(shared).mean(dim=0).tolist()) for node, shared in nodes.items()}
        keep_learned(trees[task][place], Learned(config.learn.estimator_name, means))


def _numbered(groups: Sequence[Group]) -> Iterator[tuple[int, int, Trajectory]]:
    """Yield each trajectory that has tokens with its number in a batch and its task."""
    pairs = [(group.task, trajectory) for group in groups for trajectory in group.trajectories if trajectory.num_tokens]
    for number, (task, trajectory) in enumerate(pairs):
        yield number, task, trajectory


def _place(trajectory: Trajectory, num_trees: int, harvest: Harvest) -> int:
    """Return the number of a trajectory's tree among the trees of its task.

    Plain episodes lie in the last tree; if all episodes are plain, it is the only one. A search that harvests the
    branches of a tree numbers trajectories by branch, and all of them lie in the first tree.
    """
    if harvest == "branches" and trajectory.selected_by != "naive":
        return 0
    return min(trajectory.tree, num_trees - 1)
