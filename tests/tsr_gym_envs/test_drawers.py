"""The drawers of a world: folders that import one way only, read with `ast`, so that nothing is imported."""

import ast
from graphlib import TopologicalSorter

import pytest

from tests.conftest import ROOT

ENVS = ROOT / "tsr_gym_envs"
WORLDS = sorted(path.parent.name for path in ENVS.glob("*/env.py"))


def arrows(world):
    """Return which folders and files at the top of a world each of them imports, also inside of functions."""
    package = f"tsr_gym_envs.{world}."
    found = {}
    for path in (ENVS / world).rglob("*.py"):
        here = path.relative_to(ENVS / world).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(package):
                found.setdefault(here, set()).add(node.module.removeprefix(package).partition(".")[0])
    return {here: there - {here} for here, there in found.items()}


def test_every_world_is_looked_at():
    assert WORLDS == ["frozen_lake", "jericho", "retrieval_qa", "sokoban", "textarena", "textworld", "webshop"]
    assert arrows("webshop")["site"] >= {"env", "html"}


@pytest.mark.parametrize("world", WORLDS)
def test_the_drawers_of_a_world_import_one_way_only(world):
    # Raises CycleError, which names the circle.
    assert tuple(TopologicalSorter(arrows(world)).static_order())
