"""Note advantages: from the rows of a batch back to the nodes of the trees that they were sampled in."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tsr_gym.agents.episodes.collect import ChosenSearch, Collected
from tsr_gym.agents.episodes.trajectory import Group, Learned, Trajectory, keep_learned
from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.agents.strategies.harvest import Harvest


def note_advantages(
    collected: Collected,
    groups: Sequence[Group],
    batch: Batch,
    advantages: Tensor,
    config: TrainConfig,
    search: ChosenSearch,
) -> None:
    """Write into the trees that a run may save with which advantages their turns were learned from.

    Args:
        collected: What was searched.
        groups: What was learned from, in the order in which `collate` took it.
        batch: What `collate` made of these groups, on the CPU.
        advantages: `[B, T]`, as they went into the loss.
        config: Of the run.
        search: How the trees came to be.
    """
    most = config.run.save_trees
    trees = {group.task: grown for group, grown in zip(collected.groups[:most], collected.trees[:most], strict=True)}
    advantages = advantages.cpu()
    found: dict[tuple[int, int], dict[int, list[Tensor]]] = {
        (task, place): defaultdict(list) for task, grown in trees.items() for place in range(len(grown))
    }
    for number, task, trajectory in _numbered(groups):
        if task not in trees:
            continue
        nodes = found[task, _place(trajectory, len(trees[task]), search.harvest)]
        rows = (batch.trajectory == number).nonzero()[:, 0]
        for turn, said in enumerate(trajectory.turns):
            if said.token_ids and said.node >= 0:
                nodes[said.node].append(advantages[rows][batch.turn[rows] == turn])
    for (task, place), of in found.items():
        means = {node: tuple(torch.stack(same).mean(dim=0).tolist()) for node, same in of.items()}
        keep_learned(trees[task][place], Learned(config.learn.estimator_name, means))


def _numbered(groups: Sequence[Group]) -> Iterator[tuple[int, int, Trajectory]]:
    """Yield trajectories with tokens by their numbers in a batch, and their tasks."""
    said = [(group.task, one) for group in groups for one in group.trajectories if one.num_tokens]
    for number, (task, trajectory) in enumerate(said):
        yield number, task, trajectory


def _place(trajectory: Trajectory, num_trees: int, harvest: Harvest) -> int:
    """Return which of the trees of its task a trajectory lies in.

    Plain play beside searches is the last tree; where everything is played plainly it is the only one. Trees that are
    told apart by their branches are one tree in the file.
    """
    if harvest == "branches" and trajectory.selected_by != "naive":
        return 0
    return min(trajectory.tree, num_trees - 1)
