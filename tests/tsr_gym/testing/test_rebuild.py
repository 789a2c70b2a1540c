"""How an environment is made again: by name where another process finds the name, here in any case."""

from types import ModuleType

import pytest

from tests.tsr_gym.testing.worlds import Walk
from tsr_gym.testing import check_snapshot
from tsr_gym.testing.trial import build, recipe_of


def walk():
    return Walk()


def from_a_module_that_is_gone():
    """Return a function of a module that nobody imported, as a notebook or a loader of plug-ins makes them."""
    module = ModuleType("gone_away")
    module.Walk = Walk
    exec("def make():\n    return Walk()", vars(module))
    return module.make


def test_a_function_of_a_module_has_a_name_for_another_process():
    recipe = recipe_of(Walk(), walk)
    assert recipe.order == {"factory": f"{__name__}:walk"}
    assert type(build(recipe.order)) is Walk


@pytest.mark.parametrize("factory", [lambda: Walk(), from_a_module_that_is_gone()], ids=["lambda", "gone module"])
def test_a_function_that_no_other_process_finds_makes_environments_here(factory):
    recipe = recipe_of(Walk(), factory)
    assert recipe.order is None
    assert type(recipe.build()) is Walk


def test_snapshots_are_checked_with_a_function_of_a_module_that_is_gone():
    check_snapshot(Walk(), factory=from_a_module_that_is_gone(), seeds=(0,), other_processes=False)
