"""The arrays of goals: kept beside the store, built by one process, and never half."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.tsr_gym.own_process import run_python
from tests.tsr_gym_envs.webshop.small_files import item, write_files
from tsr_gym import InvalidCatalogue
from tsr_gym_envs.webshop.catalogue.goal_tables import drawn_prices, goal_table
from tsr_gym_envs.webshop.catalogue.goals import make_goals
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.repairs import repairs_of

FIXED, ORIGINAL = repairs_of("fixed"), repairs_of("original")


@pytest.fixture
def store(tmp_path):
    items = [item(number, pricing="$5$50") for number in range(1, 40)]
    return import_catalogue(write_files(tmp_path / "in", items), tmp_path / "out")


def test_arrays_are_built_once_and_mapped_by_everyone(store):
    first = goal_table(store, "instruction")
    (folder,) = store.data.glob("goals-*")
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = goal_table(store, "instruction")
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert np.array_equal(first.tasks, again.tasks)
    for array in (again.tasks, again.combinations, again.cumulative, again.splits["train"][0]):
        assert isinstance(array.base, np.memmap) or isinstance(array.base.base, np.memmap)
        assert not array.flags.writeable


def test_a_goal_costs_a_few_bytes(real_catalogue):
    goals = make_goals(real_catalogue, FIXED)
    folder = real_catalogue.data / "goals-instruction"
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert size / len(goals) < 40


def test_prices_are_kept_for_each_seed(store):
    table = goal_table(store, "instruction")
    drawn = [drawn_prices(store, table, "instruction", seed) for seed in (0, 1, -1, 2**70)]
    assert len({prices.tobytes() for prices, _ in drawn}) == 3
    assert [path.name for path in sorted(store.data.glob("prices-*"))] == [
        "prices-instruction--1",
        "prices-instruction-0",
        "prices-instruction-1",
        f"prices-instruction-{2**70}",
    ]


def test_a_build_that_is_killed_leaves_nothing_that_is_taken_for_whole(store):
    code = (
        "import os, signal, numpy\n"
        "from tsr_gym_envs.webshop.catalogue import goal_tables\n"
        "from tsr_gym_envs.webshop.catalogue.store import open_store\n"
        "save, saved = numpy.save, []\n"
        "def dying(path, values):\n"
        "    save(path, values); saved.append(path)\n"
        "    if len(saved) == 4: os.kill(os.getpid(), signal.SIGKILL)\n"
        "goal_tables.np.save = dying\n"
        f"goal_tables.goal_table(open_store({str(store.path)!r}), 'instruction')"
    )
    assert run_python(code, check=False).returncode == -9
    assert len(list(store.data.glob(".*.partial"))) == 1
    assert len(make_goals(store, FIXED)) == 78
    assert list(store.data.glob(".*.partial")) == []


def test_processes_that_build_at_once_get_the_same_goals(store):
    code = (
        "from tsr_gym_envs.webshop.catalogue.store import open_store\n"
        "from tsr_gym_envs.webshop.catalogue.goals import make_goals\n"
        "from tsr_gym_envs.webshop.repairs import repairs_of\n"
        f"print(list(make_goals(open_store({str(store.path)!r}), repairs_of('original'), seed=3)))"
    )
    command = [sys.executable, "-c", code]
    children = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = {child.communicate(timeout=100)[0] for child in children}
    assert outputs == {f"{list(make_goals(store, ORIGINAL, seed=3))}\n"}


def test_where_the_store_cannot_be_written_the_arrays_go_into_the_cache(store, tmp_path, monkeypatch):
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    expected = make_goals(store, FIXED)[:5]
    assert list(store.data.glob("goals-*")) == []
    assert len(list((tmp_path / "cache").rglob("goals-instruction"))) == 1
    monkeypatch.undo()
    shutil.rmtree(tmp_path / "cache")
    table = goal_table(store, "instruction")
    assert [store.product(table.rows[task]).asin for task in table.tasks[:5]] == [goal["asin"] for goal in expected]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: os.truncate(folder / "tasks.npy", 140), r"tasks\.npy is missing or damaged"),
        (lambda folder: (folder / "weights.npy").unlink(), "goals-instruction is incomplete: .*weights"),
        (lambda folder: (folder / "train.npy").unlink(), "goals-instruction is incomplete: 'train'"),
    ],
)
def test_damaged_arrays_are_told(store, damage, message):
    goal_table(store, "instruction")
    damage(store.data / "goals-instruction")
    with pytest.raises(InvalidCatalogue, match=message):
        goal_table(store, "instruction")
