"""Estimators: the names of the package's own, and the declaration of what an estimator needs; torch-free.

An estimator is a function `Batch -> Tensor` from a batch to advantages `[B, T]`. The decorator `estimator` attaches its
declaration to the function, so that a run can be refused before it begins. A function without it needs nothing.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from tsr_gym.agents.learning.batch import Batch

# The estimators of `tsr_gym.agents.learning.advantages`, listed here because importing them imports torch.
ESTIMATORS = (
    *("gae", "bi_level_gae", "turn_gae", "tree_backup", "dr_grpo", "gigpo", "graph", "grpo", "mt_grpo"),
    *("reinforce_pp", "rloo", "tree_grpo", "treepo", "treerl", "tspo", "turn_rloo"),
)

Need = Literal["values", "naive", "finished", "whole_groups"]
Estimator = Callable[["Batch"], "Tensor"]
Targets = Callable[["Batch", "Tensor"], "Tensor"]
EstimatorT = TypeVar("EstimatorT", bound=Callable[..., Any])

ALWAYS: Mapping[str, object] = {}
_ATTRIBUTE = "estimator_declaration"


class Declaration(NamedTuple):
    """The declaration of an estimator, see `estimator`."""

    needs: Mapping[Need, Mapping[str, object]]
    targets: Targets | None
    compares: bool


class Needs(NamedTuple):
    """The properties that batches must have for an estimator.

    Attributes:
        values: The critic's values.
        naive: Trajectories of plain play in every group. Without them a baseline that is fitted on plain play falls
            back to all trajectories.
        finished: Finished episodes only: a branch that the search left would be treated as if nothing came after it.
        whole_groups: All trajectories of a group, because the estimator asks whether any of them succeeded. The credit
            rule that belongs to it asks the same of the whole group, and the two must agree.
    """

    values: bool = False
    naive: bool = False
    finished: bool = False
    whole_groups: bool = False


def estimator(
    *, needs: Mapping[Need, Mapping[str, object]], targets: Targets | None = None, compares: bool = False
) -> Callable[[EstimatorT], EstimatorT]:
    """Return a decorator that declares what an estimator needs.

    Args:
        needs: The properties of `Needs`, each with the argument values that cause it: ``{"naive": {"baseline":
            "naive"}}`` needs plain play where ``baseline="naive"``. `ALWAYS` for a need with any arguments.
        targets: From a batch and its advantages to the critic's regression targets, both `[B, T]`; None for an
            estimator that never uses a critic.
        compares: Whether the advantages are differences between trajectories or turns. They then have a scale and a
            mean already and are not whitened, with a critic either.

    >>> @estimator(needs={"naive": {"baseline": "naive"}})
    ... def mine(batch, *, baseline="all"):
    ...     return batch.rewards
    >>> needs_of(mine).naive, needs_of(partial(mine, baseline="naive")).naive
    (False, True)
    """

    def declare(function: EstimatorT) -> EstimatorT:
        vars(function)[_ATTRIBUTE] = Declaration(needs, targets, compares)
        return function

    return declare


def declaration_of(function: Callable[..., Any]) -> Declaration | None:
    """Return the declaration of an estimator or of a `functools.partial` of one; None where there is none."""
    while isinstance(function, partial):
        function = function.func
    # Callables of C have no attributes, and no declaration.
    attributes = vars(function) if inspect.isfunction(function) else {}
    declaration: Declaration | None = attributes.get(_ATTRIBUTE)
    return declaration


def needs_of(function: Estimator) -> Needs:
    """Return the needs of an estimator with its bound arguments; none for one without a declaration.

    Args:
        function: An estimator or a `functools.partial` of one.
    """
    declaration = declaration_of(function)
    if declaration is None:
        return Needs()
    bound = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}
    return Needs(
        **{
            need: all(bound[name] == value for name, value in causes.items())
            for need, causes in declaration.needs.items()
        }
    )
