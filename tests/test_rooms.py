"""Tests of the house inside agents: folders stand in the order of the trajectory and import only those above."""

import re

import pytest

from tests.conftest import ROOT
from tests.test_house import SOURCES, imports_of

# From who answers to what is reported; the map of ARCHITECTURE.md has them in this order.
ORDER = (
    *("processes", "policies", "models", "strategies", "raters", "arrays", "episodes", "lessons", "learning"),
    *("teaching", "config", "runs", "bridges", "reports", "probing", "cli"),
)
AGENTS = [name for name, (room, _) in SOURCES.items() if room == "agents" and name != "agents/__init__.py"]


def folder_of(module):
    """Return the folder, or file, of agents that a module lies in; None outside of agents."""
    found = re.match(r"tsr_gym\.agents\.(\w+)", module)
    return None if found is None else found.group(1)


@pytest.mark.parametrize("name", AGENTS)
def test_a_folder_imports_only_folders_above_it(name):
    here = name.split("/")[1].removesuffix(".py")
    assert here in ORDER, f"{name}: give {here} its place in the order"
    for module, line in imports_of(name):
        there = folder_of(module)
        if there is not None:
            assert there in ORDER, f"{name}:{line}: import {module} from where it lies"
            assert ORDER.index(there) <= ORDER.index(here), f"{name}:{line}: {here} may not import {module}"


def test_two_modules_stand_at_the_top_of_agents():
    tops = sorted(path.name for path in (ROOT / "agents").glob("*.py"))
    assert tops == ["__init__.py", "processes.py", "raters.py"]


def test_the_map_shows_the_folders_in_their_order():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    shown = {"processes": "`agents/processes.py`", "raters": "`raters.py`"}
    places = [text.find(shown.get(name, f"`{name}/`")) for name in ORDER]
    assert -1 not in places, [name for name, place in zip(ORDER, places, strict=True) if place < 0]
    assert places == sorted(places)
