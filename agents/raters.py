"""Raters: scores that need a model or a node's siblings, for all nodes that grew in a round at once.

Each is a `tsr_gym.tree.Rater`; hand it to a search as ``rater``. What needs one turn only is a score in
`tsr_gym.wrappers`. Invariant: the score of a node depends on the node's own tree, never on other trees.
"""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from tsr_gym.codec import encode
from tsr_gym.errors import CheckpointError, ConfigError, PromptTooLong
from tsr_gym.keywords import bind, choose
from tsr_gym.ranges import finite
from tsr_gym.tree import Node, Rater, Tree

__all__ = ["CriticValue", "OwnScore", "SelfConsistency", "WeightedRater", "choose_rater", "goes_by", "make_rater"]

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


def choose_rater(text: str) -> partial[Any]:
    """Return the class or function that makes the rater of a text; see `make_rater`.

    The model and the critic of a run are not known yet, so they are left open as None.

    Raises:
        ConfigError: There is no such rater, or it does not take these keywords.
    """
    offered = {"chat": None, "critic": None}
    return choose(text, home="tsr_gym.agents.raters", what="rater", takes=0, offered=offered, among=inspect.isclass)


def make_rater(text: str, *, chat: ChatPolicy | None = None, critic: Critic | None = None) -> Rater:
    """Return the rater that a text names, such as ``"SelfConsistency()"``.

    Args:
        text: A class, or a function that makes a rater, see `tsr_gym.keywords.choose`; bare names are those of
            `tsr_gym.agents.raters`.
        chat: The model as a policy, given to raters that take an argument of this name.
        critic: A run's own critic, given to raters that take an argument of this name and are given none in the text.

    Raises:
        ConfigError: There is no such rater, it does not take these keywords, or it needs a model that is missing.
    """
    bound = bind(text, choose_rater).bound
    own = {"chat": chat, "critic": critic}
    try:
        rater: Rater = bound(**{name: own[name] for name in own if bound.keywords.get(name, ...) is None})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the rater {text!r} cannot be made: {error}") from error
    if not callable(rater):
        raise ConfigError(f"wanted a rater, {text!r} made a {type(rater).__name__}")
    return rater


class WeightedRater:
    """Score a node by a weighted sum of the scores of several raters.

    Args:
        parts: Rater and weight by name; a rater may be text, as for `make_rater`.
        standardise: Whether each part is brought to mean 0 and standard deviation 1 among the nodes of the same tree
            that grew in the same round; a part with equal scores counts 0. Only differences within a round are left
            then, which suits a beam, and searches whose paths grow at different times badly.
        chat: The model as a policy, for parts that are text and read the model's prompts.
        critic: A run's own critic, for parts that are text and name no other.

    Raises:
        ConfigError: There are no parts, or one of them is no rater.
    """

    def __init__(
        self,
        parts: Mapping[str, tuple[Rater | str, float]],
        *,
        standardise: bool = False,
        chat: Any = None,
        critic: Any = None,
    ) -> None:
        if not parts:
            raise ConfigError("wanted at least one part of the rating, got none")
        self.weights = {name: finite(weight, f"the weight of {name}") for name, (_, weight) in parts.items()}
        self.raters: dict[str, Rater] = {
            name: make_rater(rater, chat=chat, critic=critic) if isinstance(rater, str) else rater
            for name, (rater, _) in parts.items()
        }
        self.standardise = standardise

    def __call__(self, grown: Sequence[tuple[Tree, int]]) -> list[float]:
        """Return the sums."""
        scores = self.parts(grown)
        return [sum(weight * scores[name][i] for name, weight in self.weights.items()) for i in range(len(grown))]

    def parts(self, grown: Sequence[tuple[Tree, int]]) -> dict[str, list[float]]:
        """Return the scores of each part for each node, before weighting."""
        scores = {name: list(rater(grown)) for name, rater in self.raters.items()}
        if not self.standardise:
            return scores
        trees = [id(tree) for tree, _ in grown]
        return {name: _standardised(values, trees) for name, values in scores.items()}


def goes_by(rater: Rater | None, critic: Critic | None) -> bool:
    """Return whether a rater, or a part of one, asks this critic."""
    if isinstance(rater, WeightedRater):
        return any(goes_by(part, critic) for part in rater.raters.values())
    return isinstance(rater, CriticValue) and rater.critic is critic


class OwnScore:
    """Score a node as it was when it grew: by the environment's scorer, or by the reward without one."""

    def __call__(self, grown: Sequence[tuple[Tree, int]]) -> list[float]:
        """Return the nodes' own scores."""
        return [tree.nodes[node].score for tree, node in grown]


def _standardised(values: Sequence[float], trees: Sequence[int]) -> list[float]:
    of_tree: dict[int, list[float]] = {}
    for value, tree in zip(values, trees, strict=True):
        of_tree.setdefault(tree, []).append(value)
    centre = {tree: fmean(scores) for tree, scores in of_tree.items()}
    # `pstdev` of equal numbers is not always exactly 0, and would then blow their differences of 0 up to noise.
    spread = {tree: pstdev(scores) if max(scores) > min(scores) else 0.0 for tree, scores in of_tree.items()}
    return [
        (value - centre[tree]) / spread[tree] if spread[tree] else 0.0
        for value, tree in zip(values, trees, strict=True)
    ]


def vote_of(node: Node) -> Hashable | None:
    """Return the key by which a turn votes; None for a turn without meaning, which has no vote.

    The answer where the environment names one (``info["answer"]``, without regard to case and blanks), else the actions
    that were carried out, else the action itself.
    """
    answer = node.info.get("answer")
    if isinstance(answer, str):
        return "answer", " ".join(answer.casefold().split())
    if "executed" in node.info:
        return tuple(node.info["executed"]) or None
    action = node.candidate.text
    return action if isinstance(action, Hashable) else encode(action)


class SelfConsistency:
    """Score a node by the share of its parent's candidates that have the same key.

    Self-consistency (arXiv 2203.11171) takes the majority among sampled answers; here it is a majority turn by turn. It
    needs no label and no other model, and several candidates per node: a single one always agrees with itself. Where
    scores add up along a path, the shares add up.

    Args:
        key: Key of a node: nodes with equal keys agree; None has no vote and gets 0.
    """

    def __init__(self, key: Callable[[Node], Hashable | None] = vote_of) -> None:
        self.key = key

    def __call__(self, grown: Sequence[tuple[Tree, int]]) -> list[float]:
        """Return the share of each node's siblings, itself included, that have its key."""
        votes: dict[tuple[int, int], Counter[Hashable | None]] = {}
        shares = []
        for tree, index in grown:
            node = tree.nodes[index]
            if node.parent is None:
                raise ValueError("the first node of a tree has no siblings: wanted nodes that grew")
            siblings = tree.children(node.parent)
            place = (id(tree), node.parent)
            if place not in votes:
                votes[place] = Counter(self.key(tree.nodes[sibling]) for sibling in siblings)
            key = self.key(node)
            shares.append(0.0 if key is None else votes[place][key] / len(siblings))
        return shares
