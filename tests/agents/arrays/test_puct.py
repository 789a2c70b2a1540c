"""PUCT in arrays against mctx's own visits, a twin in plain Python, and numbers worked out by hand."""

import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from tests.agents.arrays.singles import batch_of, single, twin_puct
from tsr_gym.agents.arrays import array_puct
from tsr_gym_envs.sokoban.discrete_env import BOX

ROOMS = {"num_levels": 7, "max_actions": 12}
LAKES = {"num_levels": 5, "success_rate": 0.7, "max_actions": 9, "obs_type": "array"}
GOLDEN = Path(__file__).parent / "golden" / "mctx_visits.json"


def boxes_off_goals(batch, tilt=0.0):
    """Priors that fall by the action, and minus the number of boxes that are off goals."""
    weights = np.exp(-tilt * np.arange(4.0))
    values = -(batch.observe() == BOX).sum((1, 2)).astype(float)
    return np.broadcast_to(weights / weights.sum(), (batch.num_envs, 4)), values


def test_visits_are_those_of_mctx():
    # Written by benchmarks/search_puct.py in double precision, with priors that leave no ties.
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    for case in golden["cases"]:
        envs = gym.make_vec("tsr/Sokoban-v0", num_envs=1, level=case["level"], max_actions=case["max_actions"])
        envs.reset(seed=0)
        found = array_puct(
            envs,
            simulations=case["simulations"],
            seeds=[0],
            evaluate=lambda batch: boxes_off_goals(batch, golden["tilt"]),
        )
        assert found.visits[0].tolist() == case["visits"]
        assert found.values[0] == pytest.approx(case["value"], abs=1e-9)


def cells(batch):
    """Priors and values that depend on where the player stands."""
    return by_cell(batch.observe().reshape(batch.num_envs, -1).argmax(1))


def by_cell(cell):
    cell = np.asarray(cell)
    weights = 1.0 + (cell[..., None] * (1 + np.arange(4)) % 7)
    return weights / weights.sum(-1, keepdims=True), np.sin(cell)


def cells_of_one(observation):
    priors, value = by_cell(observation.argmax())
    return priors.tolist(), float(value)


@pytest.mark.parametrize("noise", ["fresh", "common", "same"])
@pytest.mark.parametrize(("name", "settings"), [("FrozenLake", LAKES), ("Sokoban", ROOMS)])
@pytest.mark.parametrize("evaluated", [True, False])
def test_it_is_its_twin_ties_and_dice_included(noise, name, settings, evaluated):
    numbers = {"simulations": 40, "noise": noise, "c_init": 0.8, "c_base": 50.0}
    evaluate, of_one = (cells, cells_of_one) if evaluated else (None, lambda _: ([0.25] * 4, 0.0))
    found = array_puct(batch_of(name, 4, **settings), seeds=range(4), evaluate=evaluate, **numbers)
    for task in range(4):
        twin, visits = twin_puct(single(name, task, **settings), seed=task, evaluate=of_one, **numbers)
        assert found.visits[task].tolist() == visits
        assert found.values[task] == pytest.approx(twin.nodes[0]["value"], abs=1e-12)
        places = [0, *np.flatnonzero(found.tree.parents[task] >= 0).tolist()]
        assert places == [node["place"] for node in twin.nodes]
        for place, node in zip(places[1:], twin.nodes[1:], strict=True):
            assert found.tree.parents[task, place] == twin.nodes[node["parent"]]["place"]
            assert (found.tree.actions[task, place], found.tree.rewards[task, place]) == (
                node["action"],
                node["reward"],
            )
            ended = (found.tree.terminated[task, place], found.tree.truncated[task, place])
            assert ended == (node["terminated"], node["truncated"])


def test_a_push_that_solves_is_found():
    envs = gym.make_vec("tsr/Sokoban-v0", num_envs=3, level="######\n#@ $.#\n######", max_actions=20)
    envs.reset(seed=0)
    found = array_puct(envs, simulations=60, seeds=range(3))
    assert found.actions.tolist() == [3, 3, 3]
    assert (found.visits.sum(1) == 60).all()
    # Two steps to the right, the second of which pushes the box onto its goal: -0.2 + 1 + 10.
    assert found.tree.terminated.any(1).all()
    assert (found.values > 5).all()


def test_where_an_episode_has_ended_nothing_grows():
    envs = gym.make_vec("tsr/Sokoban-v0", num_envs=1, level="#####\n#@$.#\n#####", max_actions=20)
    envs.reset(seed=0)
    found = array_puct(envs, simulations=50, seeds=[3])
    assert found.visits.sum() == 50
    assert found.tree.num_expanded < 50
    assert int(found.tree.terminated.sum()) >= 1
    envs = batch_of("Sokoban", 2, level="#####\n#@$.#\n#####", autoreset_mode="Disabled")
    envs.step([3, 0])
    found = array_puct(envs, simulations=5, seeds=[0, 1])
    assert (found.visits[0].tolist(), found.visits[1].sum()) == ([0, 0, 0, 0], 5)
    assert (found.tree.actions[0] == -1).all()


def test_a_task_does_not_depend_on_the_tasks_beside_it():
    envs = batch_of("FrozenLake", 6, **LAKES)
    before = envs.snapshot()
    together = array_puct(envs, simulations=30, seeds=range(6), evaluate=cells)
    alone = array_puct(envs.take(np.array([4])), simulations=30, seeds=[4], evaluate=cells)
    for one, other in zip(alone.tree, together.tree, strict=True):
        assert np.array_equal(one[0], other[4])
    assert (alone.values[0], envs.snapshot()) == (together.values[4], before)


def test_priors_that_are_the_same_everywhere_need_no_row_for_each_state():
    envs, numbers = batch_of("FrozenLake", 3, **LAKES), {"simulations": 30, "seeds": range(3)}
    one = np.array([0.1, 0.2, 0.3, 0.4])
    each = array_puct(envs, evaluate=lambda batch: (np.tile(one, (3, 1)), np.zeros(3)), **numbers)
    for_all = array_puct(envs, evaluate=lambda batch: (one, np.zeros(3)), **numbers)
    assert np.array_equal(each.tree.actions, for_all.tree.actions)
    assert np.array_equal(each.visits, for_all.visits)


def test_single_precision_and_whole_numbers_will_do():
    envs, numbers = batch_of("FrozenLake", 3, **LAKES), {"simulations": 10, "seeds": range(3)}

    def halves(dtype):
        return lambda batch: (np.full((3, 4), 0.25, dtype), np.full(3, 0.5, dtype))

    single_precision = array_puct(envs, evaluate=halves(np.float32), c_init=1, c_base=100, **numbers)
    double = array_puct(envs, evaluate=halves(np.float64), c_init=1.0, c_base=100.0, **numbers)
    assert np.array_equal(single_precision.visits, double.visits)
    assert np.array_equal(single_precision.values, double.values)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"simulations": 0}, "wanted simulations as a whole number"),
        ({"c_base": 0.0}, "c_base > 0"),
        ({"c_init": float("nan")}, "c_init >= 0"),
        ({"noise": "loud"}, "wanted noise of"),
        ({"seeds": [1]}, "wanted one seed for each of 2 tasks"),
    ],
)
def test_impossible_numbers_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        array_puct(batch_of("Sokoban", 2, **ROOMS), **{"simulations": 2, "seeds": [0, 1], **changed})
