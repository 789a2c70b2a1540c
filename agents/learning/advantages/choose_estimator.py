"""Estimators by name, as a configuration writes them, with what a critic learns from each."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from tsr_gym.agents.learning import advantages
from tsr_gym.agents.learning.advantages.needs import needs_of
from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.learning.settings import ESTIMATORS
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import choose

Estimator = Callable[[Batch], Tensor]
Targets = Callable[[Batch, Tensor], Tensor]

# What a critic should have said, for the estimators that compare with one; those of your own are taken for the first.
_TARGETS: dict[Any, Targets] = {
    advantages.gae: advantages.value_targets,
    advantages.bi_level_gae: advantages.value_targets,
    advantages.turn_gae: advantages.turn_value_targets,
    advantages.tree_backup: advantages.tree_value_targets,
}

OURS = [vars(advantages)[name] for name in ESTIMATORS]


class Chosen(NamedTuple):
    """An estimator and its other half.

    Attributes:
        estimator: From a batch to advantages.
        targets: From a batch and its advantages to what a critic should have said.
        compares: Whether it compares trajectories or turns, so that advantages have their size and mean already, also
            beside a critic.
    """

    estimator: Estimator
    targets: Targets
    compares: bool = False


def choose_estimator(text: str, *, critic: bool, gamma: float = 1.0, lam: float = 1.0) -> Chosen:
    """Return the estimator that a text names, such as ``"tree_grpo"`` or ``"grpo(baseline='naive')"``.

    With a critic, `tree_backup` asks it what a branch is worth that the search left (``unfinished="value"``).

    Args:
        text: One of `tsr_gym.agents.learning.advantages` or ``package.module:name``, with literal keywords; ``"auto"``
            is `gae` with a critic and `grpo` without one.
        critic: Whether there is a critic.
        gamma: Discount of estimators with a critic that are given none in the text; others have defaults of their own.
        lam: Their decay.

    Raises:
        ConfigError: There is no such estimator, it does not take these keywords, or it does not go with a critic, or
            not without one.
    """
    if text == "auto":
        text = "gae" if critic else "grpo"
    home = advantages.__name__
    chosen = choose(text, home=home, what="estimator", among=lambda one: one in OURS)
    if critic and chosen.func in _TARGETS:
        offered = {"gamma": gamma, "lam": lam, "unfinished": "value"}
        chosen = choose(text, home=home, what="estimator", offered=offered)
    if chosen.func in OURS and critic != needs_of(chosen).values:
        names = ", ".join(one.__name__ for one in _TARGETS)
        raise ConfigError(
            f"the estimator {text!r} {'has no use for' if critic else 'needs'} a critic: wanted algorithm ppo with one "
            f"of {names}(unfinished='value'), or grpo with another"
        )
    targets = _TARGETS.get(chosen.func, advantages.value_targets)
    return Chosen(chosen, targets, compares=chosen.func is advantages.tree_backup)
