"""Solutions of a run: what is kept, checkpoints, and fits of the policy to them."""

import pytest

from tests.agents.short_runs import records, result, short_run, trained
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.lessons.settings import StoreConfig
from tsr_gym.errors import ConfigError

pytest.importorskip("torch")
from tsr_gym.agents.models.language_model import load_policy
from tsr_gym.agents.runs import solutions as module
from tsr_gym.agents.runs.progress import checkpoints
from tsr_gym.agents.runs.solutions import SolutionStore
from tsr_gym.agents.runs.trainer import resume_run, start_run
from tsr_gym.agents.teaching.imitation import _loss, _padded


def turn(prompt, answer, logprob=-1.0, state=None):
    return Turn(tuple(prompt), tuple(answer), (logprob,) * len(answer), 0.0, True, 1, state=state)


def episode(*turns, success=True, by="naive"):
    return Trajectory(turns, success, 0.0, by)


def rows(store):
    return [(row.ids.tolist(), row.learned.tolist()) for row in store.rows()]


def test_a_solution_is_a_row_where_prompts_extend_one_another_and_else_a_row_per_turn():
    store = SolutionStore(StoreConfig(solutions=2))
    store.keep([Group(1, (episode(turn([1], [2]), turn([1, 2, 3], [4])),))])
    assert rows(store) == [([1, 2, 3, 4], [False, True, False, True])]
    store.keep([Group(2, (episode(turn([1], [2]), turn([3], [4, 5])),))])
    assert rows(store)[1:] == [([1, 2], [False, True]), ([3, 4, 5], [False, True, True])]


def test_the_shortest_and_then_the_likeliest_solutions_of_an_instance_stay_and_failures_are_left_out():
    long, unlikely, likely = (
        episode(turn([1], [2]), turn([3], [4])),
        episode(turn([1], [5], -3.0)),
        episode(turn([1], [6], -0.5), by="levin"),
    )
    store = SolutionStore(StoreConfig(solutions=2))
    store.keep([Group(1, (long, episode(turn([1], [7]), success=False), unlikely)), Group(1, (likely, likely))])
    assert rows(store) == [([1, 6], [False, True]), ([1, 5], [False, True])]
    assert store.metrics(7) == {"solved_instances": 1, "solutions": 2, "solutions_searched": 0.5, "fit_steps": 7}


def test_instances_of_equal_first_states_share_their_solutions():
    store = SolutionStore(StoreConfig(solutions=1))
    store.keep([Group(task, (episode(turn([1], [task], state=b"room")),)) for task in (1, 2)])
    assert len(store) == 1


def test_the_instances_that_were_solved_first_are_dropped_first(monkeypatch):
    monkeypatch.setattr(module, "MOST", 3)
    store = SolutionStore(StoreConfig(solutions=1))
    store.keep([Group(task, (episode(turn([1], [task])),)) for task in range(5)])
    assert [ids[1] for ids, _ in rows(store)] == [2, 3, 4]


@pytest.mark.parametrize("count", [0, 3])
def test_a_store_is_in_its_checkpoint(count, tmp_path):
    store, again = (SolutionStore(StoreConfig(solutions=2)) for _ in range(2))
    for task in range(count):
        ways = (episode(turn([1], [task, n]), turn([3] * n, [4]), by="beam") for n in (1, 2))
        store.keep([Group(task, tuple(ways))])
    store.save(tmp_path)
    again.load(tmp_path)
    assert rows(again) == rows(store)
    assert again.metrics() == store.metrics()
    assert [*again.instances] == [*store.instances]


def test_without_a_store_nothing_is_kept_or_written(tmp_path):
    store = SolutionStore(StoreConfig())
    store.keep([Group(1, (episode(turn([1], [2])),))])
    store.save(tmp_path)
    assert (len(store), store.metrics(), [*tmp_path.iterdir()]) == (0, {}, [])


# Rooms of a single push, which the hardly trained model solves now and then.
EASY = {"env_set": ("solution_length=[1,2]",), "eval_env_set": ("solution_length=[1,2]",)}
CHANGES = {
    "task": EASY,
    "search": {"search": "naive", "trajectories": 8, "groups": 12},
    "learn": {"lr": 0.0, "algorithm": "grpo"},
    "run": {"updates": 5, "checkpoint_every": 1},
}


@pytest.mark.parametrize("begin", ["first", "current"])
def test_a_run_that_was_stopped_between_fits_resumes_bit_for_bit(begin, base_model, tmp_path):
    store = {"solutions": 2, "fit_every": 2, "fit_steps": 3, "fit_batch": 4, "fit_from": begin}
    whole = trained(tmp_path / "whole", base_model, **CHANGES, store=store)
    assert [record["fit_steps"] for record in records(whole)] == [0, 3, 0, 3, 3]
    assert records(whole)[-1]["optimizer_steps_total"] == 9
    half = tmp_path / "half"
    stops = iter((False, False, True))
    assert not start_run(short_run(half, base_model, **CHANGES, store=store), base_model).run(stop=lambda: next(stops))
    assert resume_run(half).run()
    assert result(half) == result(whole)


def test_a_fit_raises_the_probability_of_solutions_and_begins_with_the_first_weights(base_model, tmp_path):
    model = {}
    for steps in (1, 60):
        store = {"solutions": 4, "fit_every": 5, "fit_steps": steps, "fit_lr": 3e-3}
        run = trained(tmp_path / f"{steps}", base_model, **CHANGES, store=store)
        policy = load_policy(checkpoints(run)[-1] / "model", device="cpu").model
        kept = SolutionStore(StoreConfig(solutions=4))
        kept.load(checkpoints(run)[-1])
        model[steps] = float(_loss(policy, *_padded(kept.rows()))[0].detach())
    assert model[60] < 0.7 * model[1]


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"store": {"solutions": -1}}, "solutions"),
        ({"store": {"fit_every": 0}}, "fit_every"),
        ({"store": {"fit_from": "last"}}, "fit_from"),
        ({"store": {"solutions": 1}, "learn": {"lora_rank": 2}}, "lora_rank"),
    ],
)
def test_impossible_settings_are_refused(changes, fact):
    with pytest.raises(ConfigError, match=fact):
        short_run(None, "model", **changes)


def test_the_recipe_expert_stores_solutions_and_learns_by_fits_alone():
    config = TrainConfig.from_recipe("expert", env="sokoban")
    assert (config.store.solutions > 0, config.learn.lr, config.search.search_when) == (True, 0.0, "failed")
