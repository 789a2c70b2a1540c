"""A real Ray: the same run as without it, also after faults of workers and nodes. Needs ray; see `make test-ray`."""

import os
import signal
import subprocess
import sys

import pytest

from tests.agents.runs.workers.ray_here import SEARCH, cluster, faults_in, faulty, make_workers_by, nodes_of, on, train
from tests.agents.short_runs import UPDATES, command, finish, lines, result, short_run, train_flags, wait_for
from tests.conftest import ROOT
from tsr_gym.agents.runs import loop
from tsr_gym.agents.runs.progress import checkpoints
from tsr_gym.agents.runs.trainer import resume_run, start_run
from tsr_gym.agents.runs.workers.on_ray import WorkerConfig, connected
from tsr_gym.errors import EngineFailed, PromptTooLong, WorkerLost

pytest.importorskip("ray", reason="needs ray: make test-ray")


@pytest.fixture(scope="module")
def nodes():
    """A cluster of two nodes."""
    with cluster(3, 3) as made:
        yield made


@pytest.fixture
def here(nodes):
    """The address of the cluster, with which this process is connected."""
    with connected(WorkerConfig(ray=nodes.address)):
        yield nodes.address


@pytest.fixture(scope="module")
def alone(tmp_path_factory, base_model):
    """What a short run comes to without Ray."""
    return train(tmp_path_factory.mktemp("alone") / "run", base_model)


@pytest.fixture(scope="module")
def undisturbed_by_two(nodes, tmp_path_factory, base_model):
    """What it comes to with two workers to which nothing happens."""
    with connected(WorkerConfig(ray=nodes.address)):
        return train(tmp_path_factory.mktemp("two") / "run", base_model, workers=on(nodes.address))


def test_one_worker_does_the_same_as_no_ray_to_the_last_bit(here, alone, base_model, tmp_path):
    assert train(tmp_path / "run", base_model, workers=on(here, ray_workers=1)) == alone


def test_two_workers_sample_the_same_tokens_with_log_probabilities_equal_but_for_rounding(alone, undisturbed_by_two):
    ours, theirs = nodes_of(undisturbed_by_two["trees"]), nodes_of(alone["trees"])
    assert ours.keys() == theirs.keys()
    for name, nodes in ours.items():
        for node, other in zip(nodes, theirs[name], strict=True):
            pair = [each.pop("candidate") if each["parent"] is not None else ([], [], [], 0) for each in (node, other)]
            (*tokens, logprobs, version), (*other_tokens, other_logprobs, other_version) = pair
            assert (tokens, version) == (other_tokens, other_version)
            assert logprobs == pytest.approx(other_logprobs, abs=1e-5)
            assert node == other
    exact = ("step", "success", "reward_mean", "trajectories", "groups_kept", "sampled_tokens", "env_steps", "restores")
    for line, other in zip(undisturbed_by_two["metrics"], alone["metrics"], strict=True):
        assert {name: line[name] for name in exact} == {name: other[name] for name in exact}
    assert undisturbed_by_two["evaluations"] == alone["evaluations"]


EXAMS = {"search": {"groups": 1}, "run": {"updates": 2, "eval_every": 1, "eval_instances": 7}}


@pytest.fixture(scope="module")
def examined_alone(tmp_path_factory, base_model):
    """How a policy plays held-out instances at the beginning and after two updates, without Ray."""
    return train(tmp_path_factory.mktemp("examined") / "run", base_model, **EXAMS)["evaluations"]


@pytest.fixture
def driver_plays_nothing(monkeypatch):
    """Let an evaluation that the driver does by itself fail."""
    monkeypatch.setattr(loop, "examine", None)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_workers_play_the_held_out_instances_and_their_number_changes_no_number(
    here, examined_alone, driver_plays_nothing, base_model, tmp_path, count
):
    trained = train(tmp_path / "run", base_model, workers=on(here, ray_workers=count), **EXAMS)
    assert [line["step"] for line in trained["evaluations"]] == [0, 1, 2]
    assert trained["evaluations"] == examined_alone


@pytest.mark.parametrize(
    ("fault", "counted"),
    [("dies", "lost"), ("hangs", "hung"), ("loses", "refused"), ("stale", "refused"), ("secretly stale", "refused")],
)
def test_a_fault_in_an_evaluation_leaves_each_instance_played_once_by_the_right_weights(
    here, examined_alone, driver_plays_nothing, base_model, tmp_path, monkeypatch, fault, counted
):
    make_workers_by(faulty(fault, tmp_path, examined=True), monkeypatch)
    patience = 60 if fault == "hangs" else 120
    trained = train(tmp_path / "run", base_model, workers=on(here, ray_patience=patience), **EXAMS)
    # Weights of version 1 are wanted by an evaluation before they are by a search.
    step = 1 if fault.endswith("stale") else 0
    assert trained["evaluations"][step]["worker_faults"] == {counted: 1}
    assert faults_in(trained) == {counted: 1}
    assert trained["evaluations"] == examined_alone


def test_an_evaluation_whose_workers_all_die_is_made_up_for_when_the_run_goes_on(
    here, examined_alone, base_model, tmp_path, monkeypatch
):
    def kill_all(made, event, record):
        if (event, record["step"]) == ("update", 1):
            os.kill(made.parts.remote.crew.where(0)[0], signal.SIGKILL)

    with pytest.raises(WorkerLost):
        train(tmp_path / "run", base_model, workers=on(here, ray_workers=1, ray_retries=0), watch=kill_all, **EXAMS)
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["000000", "000001"]
    assert resume_run(tmp_path / "run").run()
    assert result(tmp_path / "run")["evaluations"] == examined_alone


@pytest.mark.parametrize(
    ("fault", "counted"),
    [("dies", "lost"), ("hangs", "hung"), ("breaks", "lost"), ("stale", "refused"), ("secretly stale", "refused")],
)
def test_a_worker_with_a_fault_changes_nothing_but_the_count_of_faults(
    here, undisturbed_by_two, base_model, tmp_path, monkeypatch, fault, counted
):
    make_workers_by(faulty(fault, tmp_path), monkeypatch)
    patience = 60 if fault == "hangs" else 120
    trained = train(tmp_path / "run", base_model, workers=on(here, ray_patience=patience))
    assert faults_in(trained) == {counted: 1}
    assert trained == undisturbed_by_two


def test_killed_actors_change_nothing_but_the_count_of_faults(here, undisturbed_by_two, base_model, tmp_path):
    def kill(made, event, record):
        if (event, record["step"]) == ("update", 1):
            for worker in range(2):
                os.kill(made.parts.collector.crew.where(worker)[0], signal.SIGKILL)

    trained = train(tmp_path / "run", base_model, workers=on(here), watch=kill)
    assert faults_in(trained) == {"lost": 2}
    assert trained == undisturbed_by_two


def test_a_lost_node_changes_nothing_but_the_count_of_faults(nodes, undisturbed_by_two, base_model, tmp_path):
    extra = nodes.add_node(num_cpus=3, object_store_memory=100 * 2**20)
    leaves = [extra]

    def remove(made, event, record):
        if (event, record["step"]) == ("update", 1):
            nodes.remove_node(leaves.pop(), allow_graceful=False)

    with connected(WorkerConfig(ray=nodes.address)):
        # Three workers over three nodes, so that one of them is there; the work is divided as for two workers.
        trained = train(tmp_path / "run", base_model, workers=on(nodes.address, ray_workers=3), watch=remove)
    assert sum(faults_in(trained).values()) >= 1
    exact = ("step", "success", "reward_mean", "trajectories", "groups_kept", "sampled_tokens", "env_steps")
    for line, other in zip(trained["metrics"], undisturbed_by_two["metrics"], strict=True):
        assert {name: line[name] for name in exact} == {name: other[name] for name in exact}


AHEAD = {"run": {"updates": 5, "overlap": True, "checkpoint_every": 10}}


@pytest.fixture(scope="module")
def searched_ahead(tmp_path_factory, base_model):
    """The result of a run that searches one step ahead, without Ray."""
    return train(tmp_path_factory.mktemp("ahead") / "run", base_model, **AHEAD)


def test_searching_while_it_is_learned_is_what_searching_before_it_is(here, searched_ahead, base_model, tmp_path):
    assert [line["weights_behind"] for line in searched_ahead["metrics"]] == [0, 1, 1, 1, 1]
    assert train(tmp_path / "run", base_model, workers=on(here, ray_workers=1), **AHEAD) == searched_ahead


def test_workers_that_die_while_it_is_learned_change_nothing(here, searched_ahead, base_model, tmp_path):
    def kill(made, event, record):
        if (event, record["step"]) == ("update", 2):
            os.kill(made.parts.collector.crew.where(0)[0], signal.SIGKILL)

    trained = train(tmp_path / "run", base_model, workers=on(here, ray_workers=1), watch=kill, **AHEAD)
    assert faults_in(trained) == {"lost": 1}
    assert trained == searched_ahead


@pytest.mark.parametrize("fault", ["stale", "secretly stale"])
def test_stale_weights_are_refused_while_the_learner_has_moved_on(
    here, searched_ahead, base_model, tmp_path, monkeypatch, fault
):
    make_workers_by(faulty(fault, tmp_path), monkeypatch)
    trained = train(tmp_path / "run", base_model, workers=on(here, ray_workers=1), **AHEAD)
    assert faults_in(trained) == {"refused": 1}
    assert trained == searched_ahead


def broken(error):
    def make(config, files):
        from tsr_gym.agents.runs.workers.worker import RolloutWorker

        class Broken(RolloutWorker):
            def search(self, job):
                if error is None:
                    os.kill(os.getpid(), 9)
                raise error("of no use")

        return Broken(config, files)

    return make


def test_a_run_whose_workers_all_die_keeps_a_checkpoint_and_goes_on_without_them(
    here, alone, base_model, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        make_workers_by(broken(None), patch)
        with pytest.raises(WorkerLost, match=r"failed 2 times.*ActorDiedError"):
            train(tmp_path / "run", base_model, workers=on(here, ray_workers=1, ray_retries=1))
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["000000"]
    assert resume_run(tmp_path / "run").run()
    assert result(tmp_path / "run") == alone


def test_an_error_of_the_work_itself_comes_out_as_it_is(here, base_model, tmp_path, monkeypatch):
    make_workers_by(broken(PromptTooLong), monkeypatch)
    with pytest.raises(PromptTooLong, match="of no use"):
        train(tmp_path / "run", base_model, workers=on(here))


def test_an_engine_that_breaks_off_again_and_again_ends_the_run_with_its_words(here, base_model, tmp_path, monkeypatch):
    make_workers_by(broken(EngineFailed), monkeypatch)
    with pytest.raises(WorkerLost, match=r"failed 2 times.*EngineFailed: of no use"):
        train(tmp_path / "run", base_model, workers=on(here, ray_workers=1, ray_retries=1))


def test_low_rank_matrices_and_a_resumed_run_go_to_workers_as_they_are(here, base_model, tmp_path):
    lora = {"learn": {"lora_rank": 2}}
    expected = train(tmp_path / "alone", base_model, **lora)
    config = short_run(tmp_path / "run", base_model, search=SEARCH, run={"updates": 3}, **lora)
    begun = start_run(config, base_model, workers=on(here, ray_workers=1))
    assert not begun.run(stop=lambda: True)
    assert resume_run(tmp_path / "run", workers=on(here, ray_workers=1)).run()
    assert result(tmp_path / "run")["model/model.safetensors"] == expected["model/model.safetensors"]


def test_a_learner_that_is_killed_leaves_no_workers_and_goes_on_from_its_checkpoint(nodes, base_model, tmp_path):
    import ray

    plain = train(tmp_path / "plain", base_model, search={}, run={})
    run, where = tmp_path / "run", {"--ray": nodes.address, "--ray-workers": 1}
    process = command(*train_flags(run, base_model, **where))
    wait_for(lambda: process.poll() is None, lambda: lines(run) >= 3, timeout=200)
    process.kill()
    process.communicate()
    assert 3 <= lines(run) < UPDATES
    with connected(WorkerConfig(ray=nodes.address)):
        assert resume_run(run, workers=on(nodes.address, ray_workers=1)).run()
        # At most the worker of this process holds a processor.
        assert ray.cluster_resources()["CPU"] - ray.available_resources().get("CPU", 0.0) <= 1
    assert result(run) == plain


def test_two_learning_processes_have_a_worker_each(nodes, base_model, tmp_path):
    plain = train(tmp_path / "plain", base_model, search={}, run={"updates": 2})
    own = {"--updates": 2, "--ray": nodes.address, "--ray-workers": 2}
    flags = train_flags(tmp_path / "run", base_model, **own)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = [*torchrun, "-m", "tsr_gym", *flags]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    trained = result(tmp_path / "run")
    exact = ("step", "success", "reward_mean", "trajectories", "groups_kept", "sampled_tokens", "env_steps")
    for line, other in zip(trained["metrics"], plain["metrics"], strict=True):
        assert {name: line[name] for name in exact} == {name: other[name] for name in exact}


def test_the_command_line_trains_with_a_ray_of_its_own(base_model, tmp_path):
    plain = train(tmp_path / "plain", base_model, search={}, run={"updates": 2})
    flags = train_flags(tmp_path / "run", base_model, **{"--updates": 2, "--ray": "local", "--ray-workers": 1})
    status, out, err = finish(command(*flags))
    assert status == 0, err
    assert "2 of 2 updates" in out
    assert result(tmp_path / "run") == plain
