"""Settings of how a model learns from trajectories, with the objective that it minimises; torch-free.

Numbers in parentheses name their source: TSR (arXiv 2602.11767), its released code, RAGEN, or the project's own choice.
docs/objectives.md describes what each choice of an objective estimates, and where it is biased.
"""

from dataclasses import dataclass, field
from typing import Literal

from tsr_gym.errors import ConfigError
from tsr_gym.sections import check_choices, check_numbers, setting

Level = Literal["token", "turn", "turn_mean", "sequence", "sequence_mean"]
Aggregation = Literal["sequence", "turn", "token", "constant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A loss in parts: a surrogate of the policy gradient, an entropy bonus, a KL penalty, an imitation loss."""

    surrogate: Literal["ppo", "cispo"] = "ppo"
    """ppo: the clipped surrogate (TSR Eqs. 11, 13). cispo: the ratio is a clipped weight (arXiv 2506.13585)."""
    ratio: Level = "token"
    """The unit of an importance ratio: a token (the paper's released code), a turn (Eq. 11 as written: the product over
    its tokens), turn_mean (its geometric mean), a sequence, or sequence_mean (GSPO, arXiv 2507.18071)."""
    gradient: Literal["unit", "token"] = "unit"
    """How a ratio of several tokens passes on its gradient: equally to all of them, or to each token by its own
    advantage (GSPO-token); the same where a turn or sequence has one advantage."""
    clip_low: float = 0.2
    """How far the ratio may fall below 1 (paper)."""
    clip_high: float = 0.28
    """How far it may rise above 1 (paper)."""
    dual_clip: float | None = None
    """Largest ratio of a bad token (arXiv 1912.09729; verl has 3); None for no bound."""
    aggregation: Aggregation = "sequence"
    """Units of equal weight in a mean: each trajectory (paper, Eq. 13), in it each turn (Eq. 13 with a ratio by turns),
    each token of the batch (RAGEN, DAPO), or constant: each token 1 / (trajectories x longest) (Dr. GRPO)."""
    longest: int | None = None
    """Number of tokens of the longest trajectory, for the aggregation constant."""
    entropy: float = 0.001
    """Weight of the entropy bonus (paper)."""
    kl: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of the divergence from the reference policy."""
    kl_weight: float = 0.0
    """Weight of that divergence (paper: no KL term)."""
    kl_corrected: bool = False
    """Whether the estimator is multiplied by the ratio, which makes its gradient that of KL(policy, reference)."""
    mismatch: Literal["none", "truncate", "mask"] = "none"
    """Correction where the learner's old log-probabilities differ from the sampler's: none, a weight truncated to the
    bounds below (TIS), or a weight that is 0 beyond them."""
    mismatch_level: Level = "token"
    """The unit of that weight."""
    mismatch_low: float = 0.0
    """Smallest such weight."""
    mismatch_high: float = 2.0
    """Largest such weight."""
    searched_weight: float = 1.0
    """Weight of a trajectory that a search selected, compared with 1 for plain play; 0 leaves it to imitation."""
    imitation: float = 0.0
    """Weight of the imitation of successful searched trajectories."""
    imitated: Literal["alike", "expansions"] = "alike"
    """Weight of each of them: the same (alike), or the number of expansions of its search, the loss of LevinTS and
    PHS*."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def needs_whole_sequences(self) -> bool:
        """Whether all rows of a trajectory must be in the same micro-batch."""
        return self.ratio.startswith("sequence") or (
            self.mismatch != "none" and self.mismatch_level.startswith("sequence")
        )


def _check(objective: Objective) -> None:
    """Raise ConfigError where settings are impossible or contradict each other."""
    check_choices(objective)
    check_numbers(
        objective,
        *("clip_low", "clip_high", "entropy", "kl_weight", "mismatch_low", "searched_weight", "imitation"),
        least=0,
        finite=False,
    )
    if objective.clip_low > 1:
        raise ConfigError(f"a ratio is never below 0: wanted clip_low <= 1, got {objective.clip_low}")
    if objective.dual_clip is not None and not objective.dual_clip > 1 + objective.clip_high:
        raise ConfigError(
            f"wanted dual_clip above 1 + clip_high = {1 + objective.clip_high:g}, got {objective.dual_clip}"
        )
    if objective.imitated == "expansions" and not objective.imitation:
        raise ConfigError("imitated is the weight of imitated trajectories: wanted imitation > 0, got 0")
    if objective.mismatch_high <= objective.mismatch_low:
        raise ConfigError(
            f"wanted mismatch_low < mismatch_high, got {objective.mismatch_low} and {objective.mismatch_high}"
        )
    if objective.aggregation == "constant" and not (objective.longest or 0) > 0:
        raise ConfigError("the aggregation constant divides by longest: wanted longest >= 1, got none")


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
    """Rows per forward pass, or more by microbatch_tokens; only memory and speed depend on it."""
    microbatch_tokens: int = 8192
    """Rows are added to a forward pass while its longest rows hold at most this many tokens in all: small passes leave
    a processor idle. 1 for exactly as many rows as microbatch."""
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
        check_numbers(self, "epochs", "minibatch", "steps", "microbatch", "microbatch_tokens", least=1)
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

    def rows_per_pass(self, longest: int) -> int:
        """Return the number of rows of a forward pass, given the tokens of the longest row."""
        return max(self.microbatch, self.microbatch_tokens // max(1, longest))

    @property
    def estimator_name(self) -> str:
        """The estimator, also where it goes by the algorithm."""
        by_algorithm = {"ppo": "gae", "grpo": "grpo"}[self.algorithm]
        return by_algorithm if self.estimator == "auto" else self.estimator
