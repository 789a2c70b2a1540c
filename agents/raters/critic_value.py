"""CriticValue: the value of the state after a turn, by a learned critic."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsr_gym.errors import CheckpointError, ConfigError, PromptTooLong
from tsr_gym.tree import Tree

if TYPE_CHECKING:
    from tsr_gym.agents.models.critic import Critic
    from tsr_gym.agents.policies.chat_policy import ChatPolicy


class CriticValue:
    """Score a node by the critic's value V of the state after its turn, so that its path is worth return plus V.

    Where the tree's scores rate states, a node's is the return up to it plus V. Where they rate turns, it is
    ``reward + V(after) - V(before)``, which adds up to the same but for a constant: shaping by a potential that was
    learned. V is 0 where the episode is over, as it is in training.

    A round of all searches is one forward pass of the critic, in which equal prompts are one row; its tokens are not in
    the trees' budgets. Rows do not see each other, but the last digits of float32 depend on the shape of a batch, so
    values can differ in the last digit between batch compositions; with `by_tree` they do not.

    Args:
        critic: The critic, or the folder of a checkpoint to read it from. In training with PPO none is needed: the
            run's own critic is used, with its weights at each update.
        chat: The policy whose prompts the critic was trained on.
        reward: Whether rewards are part of the score; without them a path is worth V alone.
        by_tree: Whether each tree's states are a separate forward pass, so that a tree is the same to the bit
            for every batch composition.
        digits: Decimals that are kept, so that equal states in unequal batches nearly always tie.
        max_batch: Most states in a forward pass.
        autocast: Lower precision to compute in, a `torch.dtype`; None for the critic's own.
        device: Where a critic that is read from a folder is put; ``auto`` is a GPU where there is one.

    Raises:
        ConfigError: There is no policy, or no critic.
        CheckpointError: The folder holds no critic.
    """

    def __init__(
        self,
        critic: Critic | str | os.PathLike[str] | None,
        chat: ChatPolicy | None,
        *,
        reward: bool = True,
        by_tree: bool = False,
        digits: int = 4,
        max_batch: int = 256,
        autocast: Any = None,
        device: str = "auto",
    ) -> None:
        if chat is None:
            raise ConfigError("a critic reads the prompts of a language model: wanted a ChatPolicy as chat, got None")
        if critic is None:
            raise ConfigError(
                "only training with algorithm=ppo has a critic: wanted CriticValue(critic='FOLDER'), got none"
            )
        self.critic = read_critic(Path(critic), device) if isinstance(critic, str | os.PathLike) else critic
        self.chat = chat
        self.reward = reward
        self.by_tree = by_tree
        self.digits = digits
        self.max_batch = max_batch
        self.autocast = autocast

    def __call__(self, grown: Sequence[tuple[Tree, int]]) -> list[float]:
        """Return the scores of all nodes.

        Raises:
            PromptTooLong: A state of a running episode does not fit into the critic's context.
        """
        values = self.values([state for tree, node in grown for state in _around(tree, node)])
        return [self._score(tree, node, values) for tree, node in grown]

    def _score(self, tree: Tree, node: int, values: dict[tuple[int, int], float]) -> float:
        here = tree.nodes[node]
        after = values[id(tree), node]
        if tree.score_of == "state":
            return after + (tree.total(node, "reward") if self.reward else 0.0)
        assert here.parent is not None
        return after - values[id(tree), here.parent] + (here.reward if self.reward else 0.0)

    def values(self, states: Sequence[tuple[Tree, int]]) -> dict[tuple[int, int], float]:
        """Return V by (identity of the tree, node); 0 where the episode is over.

        Raises:
            PromptTooLong: A state of a running episode does not fit into the critic's context.
        """
        # A parent is compared with each of its children; every state is computed once.
        different = {(id(tree), node): (tree, node) for tree, node in states}
        # Prompts that share forward passes: those of one tree, or all of them.
        batches: dict[int, dict[tuple[int, ...], list[tuple[int, int]]]] = {}
        for key, (tree, node) in different.items():
            if not tree.nodes[node].done:
                batch = batches.setdefault(id(tree) if self.by_tree else 0, {})
                batch.setdefault(self.chat.prompt_ids(tree, node), []).append(key)
        values = dict.fromkeys(different, 0.0)
        for batch in batches.values():
            prompts = list(batch)
            for start in range(0, len(prompts), self.max_batch):
                part = prompts[start : start + self.max_batch]
                for prompt, value in zip(part, self._forward(part), strict=True):
                    values |= dict.fromkeys(batch[prompt], value)
        return values

    def _forward(self, prompts: Sequence[Sequence[int]]) -> list[float]:
        """Return V of the state that each prompt describes."""
        import torch

        context = int(self.critic.backbone.config.max_position_embeddings)
        longest = max(map(len, prompts))
        if longest >= context:
            raise PromptTooLong(
                f"wanted states of at most {context - 1} tokens, which the critic can read, got {longest}: shorten the "
                "history, or use another model"
            )
        device = self.critic.head.weight.device
        # The critic returns the value of the state before each token, so a column is added for the next token.
        ids = torch.zeros(len(prompts), longest + 1, dtype=torch.int64)
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        present = torch.arange(longest + 1) <= lengths[:, None]
        lower = nullcontext() if self.autocast is None else torch.autocast(device.type, dtype=self.autocast)
        with torch.inference_mode(), lower:
            values = self.critic(ids.to(device), present.to(device)).float().cpu()
        return [round(value, self.digits) for value in values.gather(1, lengths[:, None])[:, 0].tolist()]


def read_critic(checkpoint: Path, device: str = "auto") -> Critic:
    """Return the critic of a training checkpoint.

    Raises:
        CheckpointError: The checkpoint is incomplete, or is of a run without a critic.
    """
    from safetensors.torch import load_file

    from tsr_gym.agents.models.language_model import load_critic, pick_device
    from tsr_gym.files import check_folder

    check_folder(checkpoint)
    where = pick_device(device)
    try:
        critic = load_critic(checkpoint / "model", device=where)
        saved = load_file(checkpoint / "critic.safetensors")
        # A head without a backbone was read off the policy's, which is what a new critic begins with.
        alone = saved.keys() == {"head.weight", "head.bias"}
        critic.load_state_dict(saved, strict=not alone)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{checkpoint}: not a checkpoint with a critic ({error}): train with PPO") from error
    return critic


def _around(tree: Tree, node: int) -> list[tuple[Tree, int]]:
    """Return the states that a node's score compares."""
    parent = tree.nodes[node].parent
    if parent is None:
        raise ValueError("the first node of a tree has no turn to rate: wanted nodes that grew")
    return [(tree, node)] if tree.score_of == "state" else [(tree, parent), (tree, node)]
