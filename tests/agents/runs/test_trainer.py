"""Trainer: a run repeats bit for bit, and a run that was stopped or killed continues as if it had not been."""

import json
import os
import shutil
from math import isfinite

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.agents.runs.test_checkpoint import STATE, small_disk
from tests.agents.runs.test_log import another_process
from tests.agents.short_runs import UPDATES, command, files_of, finish, records, result, short_run, train_flags, trained
from tests.agents.tiny import save_chat_model
from tsr_gym import CheckpointError, ConfigError, EngineFailed, PromptTooLong, TrainingDiverged, Tree
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.reports.methods import load_run
from tsr_gym.agents.runs.check import check_start
from tsr_gym.agents.runs.progress import Progress, checkpoints
from tsr_gym.agents.runs.trainer import resume_run, start_run


@pytest.fixture(scope="module")
def expected(undisturbed):
    return result(undisturbed)


def start(out, model_dir, **changes):
    config = short_run(out, model_dir, **changes)
    check_start(config)
    return start_run(config, model_dir)


def test_a_run_leaves_a_folder_with_everything_in_it(undisturbed, base_model):
    names = {"run.toml", "run_id", "metrics.jsonl", "evaluations.jsonl", "trees", "checkpoints", "tensorboard"}
    assert {path.name for path in undisturbed.iterdir()} == names
    assert TrainConfig.load(undisturbed) == short_run(undisturbed, base_model)
    lines = [json.loads(line) for line in (undisturbed / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    wanted = {
        *("step", "success", "reward_mean", "reward_std", "response_length", "turns", "groups_kept", "sampled_tokens"),
        *("model_calls", "env_steps", "grad_norm", "entropy", "clip_fraction", "seconds"),
    }
    assert all(wanted <= line.keys() for line in lines)
    assert all({"model", "env", "tree", "update", "all"} == line["seconds"].keys() for line in lines)
    assert all(sum(line["seconds"].values()) <= 2.01 * line["seconds"]["all"] for line in lines)
    # Evaluated at the beginning, every two updates, and at the end; checkpoints the same, of which two stay.
    assert [line["step"] for line in records(undisturbed, "evaluations")] == [0, 2, 4, 5]
    assert [path.name for path in checkpoints(undisturbed)] == ["000004", "000005"]


def test_the_metrics_count_what_was_done(undisturbed):
    lines, counted = records(undisturbed), ("sampled_tokens", "prompt_tokens", "optimizer_steps")
    for before, line in zip([dict.fromkeys([f"{name}_total" for name in counted], 0), *lines], lines, strict=False):
        for name in counted:
            assert line[f"{name}_total"] == before[f"{name}_total"] + line[name]
        assert (line["groups"], line["groups_kept"], line["trajectories"]) == (2, 2, 6)
        assert line["per_instance"] == "3 rollouts"
        # Without search every sampled token is of a trajectory, and every turn is a step.
        assert line["sampled_tokens"] == pytest.approx(6 * line["response_length"])
        assert line["env_steps"] == pytest.approx(6 * line["turns"])
        assert 1 <= line["model_calls"] <= 5
        assert line["grad_norm"] > 0
    assert records(undisturbed, "evaluations")[-1]["prompt_tokens_total"] == line["prompt_tokens_total"] > 0
    progress = resume_run(undisturbed).progress
    assert [getattr(progress, name) for name in counted] == [line[f"{name}_total"] for name in counted]
    assert Progress(**{"update": 3, "tasks": 6, "sampled_tokens": 99}).prompt_tokens == 0


def test_saved_trees_can_be_read_and_are_of_the_update_they_are_named_after(undisturbed):
    paths = sorted((undisturbed / "trees").glob("*/*.jsonl.gz"))
    assert [path.parent.name + "/" + path.name for path in paths] == [f"00000{n}/00-00.jsonl.gz" for n in (2, 4, 5)]
    tree = Tree.load(paths[0])
    line = records(undisturbed)[1]
    assert len(tree.children(0)) == 3
    assert 0 < tree.spent.sampled_tokens < line["sampled_tokens"]
    assert tree.about["env"] == "tsr/Sokoban-v0"


def test_tensorboard_has_every_update_and_evaluation_once(undisturbed, base_model, tmp_path):
    def steps(run, name):
        events = EventAccumulator(str(run / "tensorboard"))
        events.Reload()
        return [event.step for event in events.Scalars(name)]

    assert steps(undisturbed, "train/success") == [1, 2, 3, 4, 5]
    assert steps(undisturbed, "evaluation/success") == [0, 2, 4, 5]
    # Updates after the checkpoint that a run is resumed from are not shown twice.
    stopped = start(tmp_path / "run", base_model)
    with pytest.raises(InterruptedError):
        stopped.run(watch=raise_at("update", 3))
    assert resume_run(tmp_path / "run").run()
    assert steps(tmp_path / "run", "train/success") == [1, 2, 3, 4, 5]


def raise_at(event, step):
    def watch(seen, record):
        if (seen, record["step"]) == (event, step):
            raise InterruptedError

    return watch


def test_another_process_with_another_hash_seed_does_the_same_to_the_last_bit(expected, base_model, tmp_path):
    run = tmp_path / "run"
    status, out, err = finish(command(*train_flags(run, base_model), hash_seed="4242"))
    assert status == 0, err
    assert f"{run}: {UPDATES} of {UPDATES} updates" in out
    assert result(run) == expected


def test_another_seed_does_something_else(expected, base_model, tmp_path):
    other = result(trained(tmp_path / "run", base_model, run={"seed": 1, "updates": 1}))
    assert other["metrics"] != expected["metrics"][:1]
    # The held-out instances do not depend on the seed.
    ours, theirs = other["evaluations"][0], expected["evaluations"][0]
    assert (ours["random"], ours["optimal"]) == (theirs["random"], theirs["optimal"])


class Killed(BaseException):
    """Stands for a kill at one of the calls that touch the disk."""


def kill_at(monkeypatch, number):
    """Raise Killed at the given call of fsync or replace in this process."""
    calls = []

    def counted(real):
        def call(*args, **kwargs):
            calls.append(real)
            if len(calls) == number:
                raise Killed
            return real(*args, **kwargs)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    return calls


def check_kill_at(monkeypatch, base_model, folder, expected, number):
    with monkeypatch.context() as patched:
        kill_at(patched, number)
        try:
            start(folder, base_model).run()
        except Killed:
            pass
        else:
            return False
    if folder.exists():
        assert resume_run(folder).run()
    else:
        # Killed before the folder was there: begin again.
        assert start(folder, base_model).run()
    assert result(folder) == expected
    assert [path for path in folder.rglob("*") if path.name.endswith(".partial")] == []
    return True


# Before the run's folder is there, at an update, at a later checkpoint.
@pytest.mark.parametrize("number", [12, 18, 34])
def test_a_kill_at_any_touch_of_the_disk_changes_nothing(monkeypatch, base_model, tmp_path, expected, number):
    assert check_kill_at(monkeypatch, base_model, tmp_path / "run", expected, number)


@pytest.mark.deep
def test_a_kill_at_every_touch_of_the_disk_changes_nothing(monkeypatch, base_model, tmp_path, expected):
    number = 1
    while check_kill_at(monkeypatch, base_model, tmp_path / str(number), expected, number):
        number += 1
    assert number > 50


def test_a_requested_stop_writes_a_checkpoint_of_the_last_update(expected, base_model, tmp_path):
    run = tmp_path / "run"
    asked = iter([False, False, True])
    assert start(run, base_model).run(stop=lambda: next(asked)) is False
    assert [line["step"] for line in records(run)] == [1, 2, 3]
    assert checkpoints(run)[-1].name == "000003"
    assert resume_run(run).run()
    assert result(run) == expected


def test_a_finished_run_stays_unchanged_unless_more_updates_are_requested(undisturbed, expected, base_model, tmp_path):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    assert resume_run(run).run()
    assert result(run) == expected
    assert resume_run(run, updates=7).run()
    longer = result(trained(tmp_path / "longer", base_model, run={"updates": 7}))
    extended = result(run)
    # The shorter run was also evaluated at its end.
    assert [line["step"] for line in extended["evaluations"]] == [0, 2, 4, 5, 6, 7]
    extended["evaluations"] = [line for line in extended["evaluations"] if line["step"] != 5]
    assert extended == longer


def test_a_folder_that_exists_is_refused_and_left_alone(base_model, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "thesis.txt").write_text("precious")
    with pytest.raises(ConfigError, match=r"run exists: .* --out.* --resume"):
        start(run, base_model)
    assert files_of(run) == {"thesis.txt": b"precious"}


@pytest.mark.parametrize("missing", ["everything", "run.toml", "checkpoints"])
def test_a_folder_without_a_run_cannot_be_resumed(undisturbed, tmp_path, missing):
    run = tmp_path / "run"
    if missing != "everything":
        shutil.copytree(undisturbed, run)
        shutil.rmtree(run / missing) if missing == "checkpoints" else (run / missing).unlink()
    before = files_of(run)
    with pytest.raises(CheckpointError, match=r"run: wanted the folder of a run with run\.toml and a checkpoint"):
        resume_run(run)
    assert files_of(run) == before


@pytest.mark.parametrize("name", ["model/model.safetensors", "model/tokenizer.json", STATE, "manifest.json"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_can_be_used(undisturbed, expected, tmp_path, name):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    file = run / "checkpoints" / "000005" / name
    file.write_bytes(file.read_bytes()[:-20])
    before = files_of(run)
    facts = rf"000005.*({name}: missing or damaged|no complete checkpoint).*resume from"
    with pytest.raises(CheckpointError, match=facts):
        resume_run(run)
    assert files_of(run) == before
    # The message advises this.
    shutil.rmtree(run / "checkpoints" / "000005")
    assert resume_run(run).run()
    assert result(run) == expected


def test_a_run_that_another_process_trains_is_not_resumed(undisturbed, tmp_path):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    with another_process(run) as holder:
        before = files_of(run)
        with pytest.raises(ConfigError, match=rf"run is being trained by process {holder.pid} on"):
            resume_run(run, updates=6)
        assert files_of(run) == before


@pytest.mark.parametrize("data", [b"{", b'{"env": "\xff"}', b"[" * 100_000], ids=["cut", "no text", "deep"])
def test_a_damaged_configuration_is_named(undisturbed, tmp_path, data):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    (run / "run.toml").write_bytes(data)
    for read in (resume_run, load_run):
        with pytest.raises(ConfigError, match=r"run\.toml: "):
            read(run)


@pytest.mark.parametrize("data", [b"[1, 2", b"\xff", b"[" * 100_000, b"7", b'["1"]'])
def test_damaged_token_targets_are_named(undisturbed, tmp_path, data):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    (run / "token_targets.json").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"token_targets\.json.*damaged"):
        resume_run(run)


def test_a_full_disk_stops_the_run_with_what_it_has_and_room_lets_it_go_on(expected, base_model, tmp_path):
    run = tmp_path / "run"
    trainer = start(run, base_model)
    # The model fits on the disk, but the optimizers with their moments do not.
    size = (checkpoints(run)[0] / "model" / "model.safetensors").stat().st_size + 1000
    message = r"000002 could not be written .*earlier checkpoints are untouched: make room and resume"
    with small_disk(size), pytest.raises(CheckpointError, match=message):
        trainer.run()
    assert [path.name for path in checkpoints(run)] == ["000000"]
    assert resume_run(run).run()
    assert result(run) == expected


@pytest.mark.parametrize("steps_taken", [0, 1])
def test_an_update_that_diverges_keeps_what_was_learned_before_it(
    expected, base_model, tmp_path, monkeypatch, steps_taken
):
    run = tmp_path / "run"
    trainer = start(run, base_model)
    real, calls = trainer.parts.learner.update, []

    def diverge(batch, *, seed, **settings):
        calls.append(seed)
        if len(calls) == 4:
            error = TrainingDiverged("policy_loss became NaN")
            error.steps_taken = steps_taken
            raise error
        return real(batch, seed=seed, **settings)

    monkeypatch.setattr(trainer.parts.learner, "update", diverge)
    with pytest.raises(TrainingDiverged):
        trainer.run()
    # After a step of the failed update, the checkpoint before is the last good state.
    assert checkpoints(run)[-1].name == ("000003" if steps_taken == 0 else "000002")
    assert resume_run(run).run()
    assert result(run) == expected


@pytest.mark.parametrize("breaks", ["weights", "gradients", "after the step"])
def test_weights_that_a_step_broke_are_not_kept_and_the_sound_checkpoint_stays(
    expected, base_model, tmp_path, monkeypatch, breaks
):
    run = tmp_path / "run"
    # An update of this size is one step, so that no later step of it can notice.
    alone = {"run": {"keep_checkpoints": 1, "checkpoint_every": 1}, "learn": {"minibatch": 8}}
    trainer = start(run, base_model, **alone)
    learner = trainer.parts.learner
    step, updates = learner.optimizers["policy"].step, []

    def broken():
        step()
        updates.append(0)
        if len(updates) == 3 and breaks == "weights":
            next(learner.model.parameters()).data[0, 0] = float("nan")
        if len(updates) == 3 and breaks == "gradients":
            # Everything is still finite, but no gradient of these weights will be.
            for parameter in learner.model.parameters():
                parameter.data *= 1e6

    def failing(groups):
        if trainer.progress.update == 3:
            raise TrainingDiverged("a log-probability is not finite")
        return {}

    monkeypatch.setattr(learner.optimizers["policy"], "step", broken)
    if breaks == "after the step":
        monkeypatch.setattr(trainer, "_prompt_metrics", failing)
    with pytest.raises((TrainingDiverged, EngineFailed)):
        trainer.run()
    kept = [path.name for path in checkpoints(run)]
    assert "000002" in kept
    # A checkpoint has a line in the log for its update.
    assert int(kept[-1]) == len(records(run))
    assert kept[-1] == ("000003" if breaks == "gradients" else "000002")
    if breaks == "gradients":
        shutil.rmtree(run / "checkpoints" / "000003")
    assert resume_run(run).run()
    assert [path.name for path in checkpoints(run)] == ["000005"]
    assert [line["step"] for line in records(run)] == [1, 2, 3, 4, 5]


def test_a_copy_or_another_runs_checkpoint_is_none_of_this_run(undisturbed, expected, tmp_path):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    home = run / "checkpoints"
    for copy in ("000006_backup", "000005 (copy)", "0000007"):
        shutil.copytree(home / "000005", home / copy)
    assert resume_run(run, updates=6).run()
    assert [path.name for path in checkpoints(run)] == ["000005", "000006"]
    assert (home / "000006_backup").exists()
    shutil.copytree(home / "000005", home / "000007")
    with pytest.raises(CheckpointError, match=r"000007: .*copy of 000005"):
        resume_run(run)
    shutil.rmtree(home / "000007")
    (run / "run_id").write_text("the id of another run")
    with pytest.raises(CheckpointError, match=r"000006: a checkpoint of another run"):
        resume_run(run)


def test_a_checkpoint_of_a_copy_that_was_trained_otherwise_is_refused(undisturbed, tmp_path):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    log = run / "metrics.jsonl"
    *lines, last = log.read_text().splitlines()
    other = json.loads(last)
    log.write_text("\n".join([*lines, json.dumps(other | {"sampled_tokens_total": 7}), ""]))
    with pytest.raises(CheckpointError, match=r"000005 had sampled .* has 7: it belongs to a copy of this run"):
        resume_run(run)
    assert json.loads(log.read_text().splitlines()[-1])["sampled_tokens_total"] == 7


def test_of_two_trainers_of_one_run_the_second_looks_again(undisturbed, expected, tmp_path):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    shutil.rmtree(run / "checkpoints" / "000005")
    first, second = resume_run(run), resume_run(run)
    assert first.run()
    before = files_of(run)
    with pytest.raises(ConfigError, match=r"trained to update 5 after this trainer read update 4: resume it again"):
        second.run()
    assert files_of(run) == before
    assert result(run) == expected


def test_a_run_that_was_moved_before_it_trains_is_not_made_again(undisturbed, tmp_path):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    trainer = resume_run(run, updates=6)
    run.rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match=r"run: the run was moved or deleted: resume it where it is now"):
        trainer.run()
    assert not run.exists()


def test_a_run_goes_on_where_tensorboards_folder_is_deleted(undisturbed, tmp_path, capfd):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    assert resume_run(run, updates=7).run(watch=lambda event, record: shutil.rmtree(run / "tensorboard", True))
    assert "Traceback" not in capfd.readouterr().err


def test_a_model_without_valid_answers_is_trained_without_an_error(chat_model, tmp_path):
    changes = {"search": {"trajectories": 2}, "lessons": {"filter": "uncertainty"}}
    run = trained(tmp_path / "run", chat_model, **changes, run={"updates": 2, "eval_instances": 2})
    for line in records(run):
        # Five turns with the format penalty, equal in all episodes, so that there is nothing to learn.
        assert (line["success"], line["valid"], line["turns"], line["groups_kept"]) == (0.0, 0.0, 5.0, 0)
        assert line["reward_mean"] == pytest.approx(-0.5)
        assert line["policy_loss"] is line["grad_norm"] is None


def test_prompts_that_grow_are_trained_as_one_row_and_computed_once(chat_model, tmp_path):
    changes = {"search": {"trajectories": 2}, "learn": {"algorithm": "grpo"}}
    run = trained(tmp_path / "run", chat_model, **changes, run={"updates": 1, "eval_instances": 2})
    (line,) = records(run)
    # Each of five prompts extends the one before, so most of their tokens were computed already.
    assert line["prompt_tokens_saved"] > 0.6 * line["prompt_tokens"]
    assert line["value_loss"] is None
    assert not (checkpoints(run)[-1] / "critic.safetensors").exists()


@pytest.mark.parametrize("context", [200, 700])
def test_an_episode_that_outgrows_the_model_is_an_error_and_the_checkpoint_stays(tmp_path, context):
    trainer = start(tmp_path / "run", save_chat_model(tmp_path / "model", context=context))
    with pytest.raises(PromptTooLong, match=rf"model's context of {context}, got \d+: shorten the history"):
        trainer.run()
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["000000"]


def test_a_run_can_match_the_tokens_of_another(base_model, tmp_path):
    beam = trained(tmp_path / "beam", base_model, search={"search": "beam(width=1)"}, run={"updates": 2})
    matched = trained(tmp_path / "matched", base_model, search={"match_tokens": beam}, run={"updates": 2})
    theirs, ours = records(beam), records(matched)
    assert [line["groups"] for line in theirs] == [2, 2]
    for their, our in zip(theirs, ours, strict=True):
        # The same total, exceeded by less than one group.
        surplus = our["sampled_tokens_total"] - their["sampled_tokens_total"]
        assert 0 <= surplus < MOST_OF_A_GROUP
        assert our["groups"] > 2
    assert json.loads((matched / "token_targets.json").read_text()) == [line["sampled_tokens_total"] for line in theirs]
    # The other run may be gone when this one is resumed.
    often = {"updates": 2, "checkpoint_every": 1}
    again = start(tmp_path / "again", base_model, search={"match_tokens": beam}, run=often)
    again.run(stop=lambda: True)
    shutil.rmtree(beam)
    assert resume_run(tmp_path / "again").run()
    assert records(tmp_path / "again") == ours
    with pytest.raises(ConfigError, match=r"matches the tokens of a run of 2 updates: it cannot have more"):
        resume_run(tmp_path / "again", updates=3)


def test_a_missing_or_too_short_run_cannot_be_matched(undisturbed, base_model, tmp_path):
    for other, has in ((undisturbed, 5), (tmp_path / "nowhere", 0)):
        with pytest.raises(ConfigError, match=rf"match_tokens: wanted a run of at least 9 updates, .* has {has}"):
            start(tmp_path / "run", base_model, search={"match_tokens": other}, run={"updates": 9})
    assert not (tmp_path / "run").exists()


def test_a_model_that_cannot_be_read_and_a_disk_without_room_leave_no_folder(tmp_path, base_model):
    with pytest.raises(CheckpointError, match="wanted the folder of a Hugging Face model"):
        start(tmp_path / "run", tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []
    with small_disk(1000), pytest.raises(CheckpointError, match="could not be written"):
        start(tmp_path / "run", base_model)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="file/run could not be written"):
        start(tmp_path / "file" / "run", base_model)


def test_a_run_is_always_evaluated_at_its_beginning_and_end(base_model, tmp_path):
    settings = {"eval_every": 0, "updates": 3, "save_trees": 0, "keep_checkpoints": 9}
    run = trained(tmp_path / "run", base_model, run=settings)
    assert [line["step"] for line in records(run, "evaluations")] == [0, 3]
    assert [path.name for path in checkpoints(run)] == ["000000", "000002", "000003"]
    assert list((run / "trees").glob("*/*")) == []


@pytest.mark.gpu
@pytest.mark.parametrize("model", ["base_model", "chat_model"])
def test_a_run_trains_on_a_gpu(model, tmp_path, request):
    run = trained(tmp_path / "run", request.getfixturevalue(model), model={"device": "cuda"})
    lines = records(run)
    assert [line["step"] for line in lines] == list(range(1, UPDATES + 1))
    assert all(isfinite(line["grad_norm"]) for line in lines)


# Each of three trajectories has at most six tokens in each of five turns.
MOST_OF_A_GROUP = 3 * 5 * 6


def test_a_run_ends_when_its_tokens_are_sampled_and_goes_beyond_them_by_less_than_a_group(
    undisturbed, base_model, tmp_path
):
    free = records(undisturbed)
    # One token more than two updates take: the third update is cut short.
    budget = free[1]["sampled_tokens_total"] + 1
    run = trained(tmp_path / "run", base_model, run={"total_tokens": budget})
    lines = records(run)
    assert [line["groups"] for line in lines] == [2, 2, 1]
    assert [line["sampled_tokens_total"] for line in lines[:2]] == [line["sampled_tokens_total"] for line in free[:2]]
    assert budget <= lines[-1]["sampled_tokens_total"] < budget + lines[-1]["sampled_tokens"]
    # This end of the run is evaluated and saved, too.
    assert records(run, "evaluations")[-1]["step"] == 3
    assert checkpoints(run)[-1].name == "000003"
    trainer = resume_run(run)
    assert trainer.finished
    assert trainer.run()
    assert records(run) == lines


def test_a_stopped_run_of_limited_tokens_resumes_bit_for_bit(base_model, tmp_path):
    limit = {"run": {"total_tokens": 400, "checkpoint_every": 1, "updates": 50}}
    whole = trained(tmp_path / "whole", base_model, **limit)
    assert not start(tmp_path / "run", base_model, **limit).run(stop=lambda: True)
    assert resume_run(tmp_path / "run").run()
    assert result(tmp_path / "run") == result(whole)
    assert records(whole)[-1]["sampled_tokens_total"] >= 400


def test_updates_end_by_tokens_or_by_trajectories_kept(base_model, tmp_path):
    lines = records(trained(tmp_path / "run", base_model, run={"update_tokens": 150, "updates": 5}))
    totals = [line["sampled_tokens_total"] for line in lines]
    assert all(0 <= total - 150 * update < MOST_OF_A_GROUP for update, total in enumerate(totals, 1))
    # Every group of three is kept; after the first group, two are searched together.
    few = {"run": {"update_trajectories": 7, "updates": 2, "total_tokens": 9_999}, "lessons": {"filter": "none"}}
    assert [line["groups"] for line in records(trained(tmp_path / "kept", base_model, **few))] == [4, 4]


def test_learning_rates_fall_over_the_second_half_of_a_run(base_model, tmp_path):
    learn = {"lr_decay_from": 0.5, "lr_floor": 0.3, "lr": 0.01}
    lines = records(trained(tmp_path / "run", base_model, run={"updates": 5}, learn=learn))
    assert [line["lr"] for line in lines] == pytest.approx([0.01, 0.01, 0.01, 0.008, 0.004])
