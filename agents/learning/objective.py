"""Objective: the loss that a learner minimises, with the paper's numbers as defaults; torch-free.

docs/objectives.md describes what each choice estimates, and where it is biased.
"""

from dataclasses import dataclass
from typing import Literal

from tsr_gym.errors import ConfigError
from tsr_gym.sections import check_choices, check_numbers

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
    """Weight of each of them: the same (alike), or the number of nodes that its search expanded, the loss of LevinTS
    and PHS*."""

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
