"""Needs: what an estimator can only be called with, read off its arguments before a run begins."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from tsr_gym.agents.learning.advantages.gae import bi_level_gae, gae, turn_gae
from tsr_gym.agents.learning.batch import Batch


class Needs(NamedTuple):
    """The properties that batches have to have for an estimator.

    Attributes:
        values: The critic's values.
        naive: Trajectories of plain play in every group: without them a baseline that is fitted on them is fitted on
            all.
        finished: Finished episodes only, because a branch that the search left is treated as if nothing came after it.
        whole_groups: All trajectories of a group, because it asks whether any of them succeeded, as the credit rule
            that goes with it does: where it is not shown the searched ones, the two may disagree.
    """

    values: bool
    naive: bool
    finished: bool
    whole_groups: bool = False


def needs_of(estimator: Callable[[Batch], Tensor]) -> Needs:
    """Return the needs of an estimator, by the values of its arguments; none of one of your own that has no such.

    Args:
        estimator: A function of `tsr_gym.agents.learning.advantages` or a `functools.partial` of one.
    """
    chosen = {name: argument.default for name, argument in inspect.signature(estimator).parameters.items()}
    function: Any = estimator
    while isinstance(function, partial):
        function = function.func
    with_critic = function in (gae, turn_gae, bi_level_gae)
    return Needs(
        values=with_critic or chosen.get("unfinished") == "value",
        naive=chosen.get("baseline") == "naive",
        finished=with_critic,
        whole_groups=chosen.get("groups") == "all_wrong",
    )
