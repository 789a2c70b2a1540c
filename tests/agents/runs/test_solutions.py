"""Solutions of a run: the shortest known ways, checkpoints, and fits of the policy to them."""

import pytest

from tests.agents.short_runs import records, result, short_run, trained
from tests.agents.worlds import grow_bare
from tsr_gym import Budget, Candidate
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.collect import Collected
from tsr_gym.agents.episodes.trajectory import Group, trajectory_to
from tsr_gym.agents.lessons.settings import StoreConfig
from tsr_gym.errors import ConfigError

pytest.importorskip("torch")
from tsr_gym.agents.models.language_model import load_policy
from tsr_gym.agents.runs import solutions as module
from tsr_gym.agents.runs.progress import checkpoints
from tsr_gym.agents.runs.solutions import SolutionStore
from tsr_gym.agents.runs.trainer import resume_run, start_run
from tsr_gym.agents.teaching.imitation import _loss, _padded

STORE = StoreConfig(fit_passes=2, fit_batch=1)


def collected(task, *episodes, keyed=True):
    """Return plain episodes of a task as a tree: a letter per move, the state after which is the letter itself.

    A capital letter is unlikely, "!" succeeds and "." fails.
    """
    places = [(number, place) for number, episode in enumerate(episodes) for place in range(len(episode))]

    def child(tree, parent, number):
        episode, place = places[len(tree.nodes) - 1]
        letter = episodes[episode][place]
        after = letter.lower().encode() if keyed else None
        if tree.root == parent and len(tree.nodes) == 1:
            object.__setattr__(tree.nodes[0], "state_key", b"start" if keyed else None)
        return {
            "candidate": Candidate(letter, (ord("?"),), (ord(letter),), (-3.0 if letter.isupper() else -1.0,)),
            "terminated": letter in "!.", "info": {"success": letter == "!"}, "state_key": after,
        }  # fmt: skip

    def episodes_in_order(tree):
        from tsr_gym import Expand

        for episode in episodes:
            node = tree.root
            for _ in episode:
                yield [Expand(node)]
                node = tree.children(node)[-1]

    tree, _ = grow_bare(episodes_in_order, child)
    group = Group(task, tuple(trajectory_to(tree, leaf, selected_by="naive") for leaf in tree.leaves()))
    return Collected([group], [[tree]], Budget(), 1, {})


def ways(store):
    """Return the move and the length of the way from every state, by instance."""
    return [
        {state.decode(): (chr(move.row.ids[-1]), move.turns) for state, move in moves.items()}
        for moves in store.instances.values()
    ]


def test_every_state_from_which_a_way_is_known_has_the_first_move_of_the_shortest_one():
    store = SolutionStore(STORE)
    # The second episode fails, but from where it was, "a", the first one shows a way; it knows a shorter one to "c".
    store.keep(collected(1, "abc!", "cax."))
    assert ways(store) == [{"c": ("!", 1), "start": ("c", 2), "b": ("c", 2), "a": ("b", 3)}]
    assert [row.learned.tolist() for row in store.rows()] == [[False, True]] * 4
    # A later round knows a way that joins an old one.
    store.keep(collected(2, "xb.", "b!"))
    assert ways(store)[0]["x"] == ("b", 2)
    assert ways(store)[0]["b"] == ("!", 1)
    assert store.metrics(7) == {"solved_instances": 1, "solved_states": 5, "fit_steps": 7}


def test_of_ways_of_equal_length_the_likelier_move_stays():
    store = SolutionStore(STORE)
    store.keep(collected(1, "A!", "b!"))
    assert ways(store)[0]["start"] == ("b", 2)


def test_a_group_without_success_is_left_out_and_without_keys_a_way_is_that_of_its_episode():
    store = SolutionStore(STORE)
    store.keep(collected(1, "ab."))
    assert (len(store), store.steps_due(last=True)) == (0, 0)
    store.keep(collected(2, "ab!", "ac.", keyed=False))
    assert sorted(move.turns for moves in store.instances.values() for move in moves.values()) == [1, 2, 3]


def test_the_instances_that_were_solved_first_are_dropped_first(monkeypatch):
    monkeypatch.setattr(module, "MOST", 4)
    store = SolutionStore(STORE)
    for task in range(5):
        store.keep(collected(task, "a!", keyed=False))
    assert [*store.instances] == [b"3", b"4"]


def test_a_fit_is_due_when_the_store_has_grown_and_at_the_end():
    store = SolutionStore(STORE)
    store.keep(collected(1, "abc!"))
    assert store.steps_due(last=False) == 8
    store.fitted = 4
    assert (store.steps_due(last=False), store.steps_due(last=True)) == (0, 8)
    store.keep(collected(2, "xya."))
    assert store.steps_due(last=False) == 0
    store.keep(collected(3, "xya!"))
    assert store.steps_due(last=False) == 12


@pytest.mark.parametrize("count", [0, 3])
def test_a_store_is_in_its_checkpoint(count, tmp_path):
    store, again = SolutionStore(STORE), SolutionStore(STORE)
    for task in range(count):
        store.keep(collected(task, "ab!", "c!", keyed=task == 1))
    store.fitted = count
    store.save(tmp_path)
    again.load(tmp_path)
    assert (ways(again), again.fitted, [*again.instances]) == (ways(store), count, [*store.instances])
    assert [(row.ids.tolist(), row.learned.tolist()) for row in again.rows()] == [
        (row.ids.tolist(), row.learned.tolist()) for row in store.rows()
    ]


def test_without_fits_nothing_is_kept_or_written(tmp_path):
    store = SolutionStore(StoreConfig())
    store.keep(collected(1, "a!"))
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
    store = {"fit_passes": 2.0, "fit_batch": 4, "fit_from": begin}
    whole = trained(tmp_path / "whole", base_model, **CHANGES, store=store)
    steps = [record["fit_steps"] for record in records(whole)]
    assert steps[-1] > 0 in steps
    assert records(whole)[-1]["optimizer_steps_total"] == sum(steps)
    half = tmp_path / "half"
    stops = iter((False, False, True))
    assert not start_run(short_run(half, base_model, **CHANGES, store=store), base_model).run(stop=lambda: next(stops))
    assert resume_run(half).run()
    assert result(half) == result(whole)


def test_a_fit_raises_the_probability_of_solutions_and_begins_with_the_first_weights(base_model, tmp_path):
    model = {}
    for passes in (0.1, 200.0):
        store = {"fit_passes": passes, "fit_growth": 99.0, "fit_lr": 3e-3, "fit_batch": 16}
        run = trained(tmp_path / f"{passes}", base_model, **CHANGES, store=store)
        policy = load_policy(checkpoints(run)[-1] / "model", device="cpu").model
        kept = SolutionStore(STORE)
        kept.load(checkpoints(run)[-1])
        model[passes] = float(_loss(policy, *_padded(kept.rows()))[0].detach())
    assert model[200.0] < 0.7 * model[0.1]


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"store": {"fit_passes": -1.0}}, "fit_passes"),
        ({"store": {"fit_batch": 0}}, "fit_batch"),
        ({"store": {"fit_from": "last"}}, "fit_from"),
        ({"store": {"fit_passes": 1.0}, "learn": {"lora_rank": 2}}, "lora_rank"),
        ({"search": {"search": "levin", "search_temperature": 2.0}}, "searched_weight=0"),
    ],
)
def test_impossible_settings_are_refused(changes, fact):
    from tsr_gym.agents.runs.check import check_start

    with pytest.raises(ConfigError, match=fact):
        check_start(short_run(None, "model", **changes))


def test_the_recipe_expert_keeps_a_store_and_learns_by_fits_alone():
    config = TrainConfig.from_recipe("expert", env="sokoban")
    assert (config.store.fit_passes > 0, config.learn.lr, config.search.search_when) == (True, 0.0, "failed")
