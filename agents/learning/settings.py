"""Settings of how a model learns from trajectories; torch-free.

Numbers in parentheses name their source: TSR (arXiv 2602.11767), its released code, RAGEN, or the project's own choice.
"""

from dataclasses import dataclass, field
from typing import Literal

from tsr_gym.agents.learning.objective import Objective
from tsr_gym.errors import ConfigError
from tsr_gym.sections import check_choices, check_numbers, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnConfig:
    """How the model learns from trajectories."""

    algorithm: Literal["ppo", "grpo"] = "ppo"
    """ppo with a critic (paper: Sokoban), or grpo without one (paper: FrozenLake, WebShop)."""
    estimator: str = setting("auto", metavar="CALL")
    """Advantages: auto (gae for ppo, grpo for grpo), tree_grpo, turn_gae, tspo or another of
    tsr_gym.agents.learning.advantages, with its numbers as in grpo(baseline='naive'), or package.module:name."""
    objective: Objective = field(default_factory=Objective)
    """The loss."""
    lr: float = 1e-6
    """Learning rate of the policy (released code)."""
    lr_decay_from: float = 1.0
    """Share of the run, counted as search_until counts it, from which the learning rates fall in a straight line to 0
    at its end, but not below lr_floor; 1 keeps them."""
    lr_floor: float = 0.1
    """Least share of the learning rates that a decay leaves."""
    critic_lr: float = 1e-5
    """Learning rate of the critic (released code)."""
    critic: Literal["model", "head"] = "model"
    """A separate model that begins as a copy of the policy, or a value head on the policy's backbone, which takes no
    memory."""
    critic_gradient: float = 0.0
    """With critic=head, share of the value loss's gradient that reaches the policy; 0 for none."""
    lora_rank: int = 0
    """Train low-rank matrices of this rank and freeze the weights (LoRA; needs the extra lora); 0 trains the weights
    themselves."""
    lora_alpha: float = 32.0
    """The product of these matrices is scaled by alpha / rank."""
    lora_targets: tuple[str, ...] = setting((), metavar="NAME")
    """Ends of the names of layers that have them, such as q_proj; none for all linear layers but the output layer."""
    lora_engine: Literal["merged", "adapter"] = "merged"
    """Weights that vLLM gets after an update: all weights with the matrices merged into them, or the matrices alone,
    which engine vllm accepts and a server does not."""
    weight_decay: float = 0.01
    """AdamW's weight decay (released code)."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's moments (paper)."""
    value_clip: float = 0.5
    """How far a value may move in an update (RAGEN)."""
    gamma: float = 1.0
    """Discount (paper)."""
    lam: float = 1.0
    """Decay of GAE (paper)."""
    grad_clip: float = 1.0
    """Largest norm of a gradient (released code)."""
    epochs: int = 1
    """Times that an update goes through its trajectories (released code: 1)."""
    minibatch: int = 32
    """Trajectories per optimizer step (paper: 32, so that an update is one step). Where every leaf of a search is
    learned from, the number of steps is that for the trajectories that would have been selected: steps are larger."""
    steps: int | None = None
    """Optimizer steps per epoch for any number of trajectories, in place of minibatch; 1 with match_tokens makes larger
    steps of more groups. None for as many as minibatch makes."""
    microbatch: int = 8
    """Rows per forward pass; only memory and speed depend on it."""
    layout: Literal["auto", "padded", "packed", "shared"] = "auto"
    """Layout of rows for the model: padded, packed without padding, shared beginnings computed once, or the cheapest of
    these; only memory and speed depend on it."""
    logits: Literal["whole", "parts"] = "whole"
    """parts computes the logits of few tokens at a time, which takes a little time and saves memory."""
    recompute: bool = False
    """Compute activations again in the backward pass, which takes time and saves memory."""
    skip_spikes: bool = False
    """Skip steps whose gradient is far larger than those before."""
    offload: bool = False
    """Keep parameters, gradients and optimizer state in the memory of the CPU while nothing is computed with them,
    which takes time and saves memory of the GPU."""
    old_logprobs: Literal["sampler", "learner"] = "sampler"
    """Old log-probabilities of the ratio: the sampler's, or recomputed by the learner before the update (RAGEN)."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_numbers(self, "epochs", "minibatch", "steps", "microbatch", least=1)
        check_numbers(self, "lr", "critic_lr", "weight_decay", "lora_rank", least=0)
        check_numbers(self, "grad_clip", "value_clip", "lora_alpha", above=0)
        check_numbers(self, "gamma", "lam", "critic_gradient", "lr_decay_from", "lr_floor", least=0, most=1)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"wanted betas from 0 to below 1, got {self.betas}")
        if self.objective.mismatch != "none" and self.old_logprobs != "learner":
            raise ConfigError(
                "mismatch compares the learner's old log-probabilities with the sampler's: wanted "
                f"old_logprobs=learner, got {self.old_logprobs}"
            )

    @property
    def estimator_name(self) -> str:
        """The estimator, also where it goes by the algorithm."""
        by_algorithm = {"ppo": "gae", "grpo": "grpo"}[self.algorithm]
        return by_algorithm if self.estimator == "auto" else self.estimator
