"""Estimators by name, as a configuration writes them, each with what a critic learns from it."""

from typing import NamedTuple

from torch import Tensor

from tsr_gym.agents.learning import advantages
from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.learning.estimators import ESTIMATORS, Estimator, Targets, declaration_of, needs_of
from tsr_gym.errors import ConfigError, TrainingDiverged, named, shown
from tsr_gym.keywords import choose

OURS = {name: vars(advantages)[name] for name in ESTIMATORS}


class Chosen(NamedTuple):
    """An estimator and its other half.

    Attributes:
        estimator: From a batch to advantages.
        targets: From a batch and its advantages to the critic's regression targets.
        compares: Whether it compares trajectories or turns, so that its advantages are not whitened, with a critic
            either.
    """

    estimator: Estimator
    targets: Targets
    compares: bool = False


def choose_estimator(text: str, *, critic: bool, gamma: float = 1.0, lam: float = 1.0) -> Chosen:
    """Return the estimator that a text names, such as ``"tree_grpo"`` or ``"grpo(baseline='naive')"``.

    With a critic, `tree_backup` completes the branches that the search left by the critic's value
    (``unfinished="value"``).

    Args:
        text: One of `tsr_gym.agents.learning.advantages` or ``package.module:name``, with literal keywords; ``"auto"``
            is `gae` with a critic and `grpo` without one.
        critic: Whether there is a critic.
        gamma: Discount of estimators with a critic whose text sets none; the others have their own defaults.
        lam: Decay of the same estimators.

    Raises:
        ConfigError: There is no such estimator, it does not take these keywords, or it does not go with a critic, or
            not without one.
    """
    if text == "auto":
        text = "gae" if critic else "grpo"
    home = advantages.__name__
    estimator = choose(text, home=home, what="estimator", among=lambda function: function in OURS.values())
    declaration = declaration_of(estimator)
    if declaration is None:
        # A function of the user's without a declaration is used as it is, with a critic or without.
        return Chosen(estimator, advantages.value_targets)
    if critic and declaration.targets is not None:
        offered = {"gamma": gamma, "lam": lam, "unfinished": "value"}
        estimator = choose(text, home=home, what="estimator", offered=offered)
    if critic != needs_of(estimator).values:
        learned = ", ".join(name for name, function in OURS.items() if _targets_of(function) is not None)
        raise ConfigError(
            f"the estimator {text!r} {'has no use for' if critic else 'needs'} a critic: wanted algorithm ppo with one "
            f"of {learned}(unfinished='value'), or grpo with another"
        )
    return Chosen(estimator, declaration.targets or advantages.value_targets, declaration.compares)


def estimated(estimator: Estimator, batch: Batch) -> Tensor:
    """Return the advantages of a batch by an estimator, `[B, T]`.

    Raises:
        ConfigError: They are no tensor of this shape, or not zero where nothing was sampled.
        TrainingDiverged: An advantage is NaN or infinite.
    """
    advantages, wanted = estimator(batch), f"wanted advantages [B, T] of shape {[*batch.sampled.shape]}"
    if not isinstance(advantages, Tensor) or advantages.shape != batch.sampled.shape:
        got = f"shape {[*advantages.shape]}" if isinstance(advantages, Tensor) else shown(advantages)
        raise ConfigError(f"the estimator {named(estimator)}: {wanted}, got {got}")
    if not advantages.isfinite().all():
        raise TrainingDiverged(f"the estimator {named(estimator)}: wanted finite advantages, got NaN or infinity")
    if advantages[~batch.sampled].any():
        raise ConfigError(f"the estimator {named(estimator)}: {wanted} that are 0 where nothing was sampled")
    return advantages


def _targets_of(estimator: Estimator) -> Targets | None:
    declaration = declaration_of(estimator)
    return None if declaration is None else declaration.targets
