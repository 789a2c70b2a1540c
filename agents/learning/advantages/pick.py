"""Estimators by name, as a configuration writes them, with what a critic learns from each."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from tsr_gym.agents.learning import advantages
from tsr_gym.agents.learning.batch import Batch
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import parse_call

Estimator = Callable[[Batch], Tensor]
Targets = Callable[[Batch, Tensor], Tensor]

# What a critic should have said, for the estimators that compare with one; those of your own are taken for the first.
_TARGETS: dict[Any, Targets] = {
    advantages.gae: advantages.value_targets,
    advantages.bi_level_gae: advantages.value_targets,
    advantages.turn_gae: advantages.turn_value_targets,
}


class Chosen(NamedTuple):
    """An estimator and its other half.

    Attributes:
        estimator: From a batch to advantages.
        targets: From a batch and its advantages to what a critic should have said.
    """

    estimator: Estimator
    targets: Targets


def pick_estimator(text: str, *, critic: bool, gamma: float = 1.0, lam: float = 1.0) -> Chosen:
    """Return the estimator that a text names, such as ``"tree_grpo"`` or ``"grpo(baseline='naive')"``.

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
    estimator, given = parse_call(text, home="tsr_gym.agents.learning.advantages")
    wanted = list(inspect.signature(estimator).parameters)[1:]
    if unknown := sorted(set(given) - set(wanted)):
        raise ConfigError(f"the estimator {text!r} has no {unknown}; it has {wanted}")
    ours = [vars(advantages)[name] for name in advantages.__all__]
    if estimator in ours and critic != (estimator in _TARGETS):
        names = ", ".join(one.__name__ for one in _TARGETS)
        raise ConfigError(
            f"the estimator {text!r} {'has no use for' if critic else 'needs'} a critic: wanted algorithm ppo with one "
            f"of {names}, or grpo with another"
        )
    defaults = {"gamma": gamma, "lam": lam} if estimator in _TARGETS else {}
    return Chosen(partial(estimator, **defaults | given), _TARGETS.get(estimator, advantages.value_targets))
