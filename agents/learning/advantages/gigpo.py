"""GiGPO's advantages: whole episodes compared, and steps that were taken in the same state (arXiv 2505.10978)."""

from typing import Literal

from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.comparison import Scale
from tsr_gym.agents.learning.advantages.mechanism.estimate import estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Backup, Baseline, Contrast
from tsr_gym.agents.learning.batch import Batch


def gigpo(
    batch: Batch,
    *,
    gamma: float = 0.95,
    step_weight: float = 1.0,
    scale: Scale = "std",
    eps: float = 1e-6,
    episodes: Literal["trajectory", "step"] = "trajectory",
    alone: Literal["zero", "raw"] = "zero",
    baseline: Baseline = "all",
) -> Tensor:
    """Return the advantages ``A = A_episode + step_weight A_step``, `[B, T]`, on all tokens of a step.

    A_episode is ``(R - mean) / (std + eps)`` over the group's episodes. A_step is the same over all steps of the group
    that were taken in the same state (its anchor), of what each earns from there on, ``sum_l gamma^l r_{t+l}``. States
    are the same where the environment's `state_key` is; grouping by similar text, which the published search
    experiments use, is not offered. A step whose state no other step visited, or whose state is unknown, has A_step 0.

    Args:
        batch: Trajectories with states.
        gamma: Discount per turn, 0.95 in the published scripts.
        step_weight: Weight of A_step, 1 in the published scripts.
        scale: Deviation of a sample, or nothing; the paper has both, as ``F_norm``.
        eps: Added to the deviation.
        episodes: What counts once in A_episode's mean and deviation: a trajectory, as the paper writes it, or each of
            its steps, as the published code does by default, where long episodes weigh more.
        alone: The advantage of a singleton group: 0, or its return, as in the published code.
        baseline: What the mean is fitted on: all, the naive ones, or searched and naive ones apart.
    """
    to_go = Backup(rewards="turn", kind="return_to_go", gamma=gamma)
    return estimate(
        batch,
        Contrast(unit=episodes, scale=scale, eps=eps, alone=alone, baseline=baseline),
        Contrast("state", unit="step", scale=scale, eps=eps, baseline=baseline, weight=step_weight, of=to_go),
    )
