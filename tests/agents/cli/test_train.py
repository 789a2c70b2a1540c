"""`tsr train`: a run by its flags; an error is one message and an exit status, and no file is lost."""

import gc
import json
import re
import shutil
import signal
import time
import tomllib

import pytest

from tests.agents.short_runs import UPDATES, records, result, train_flags
from tsr_gym.agents import cli
from tsr_gym.agents.cli import output
from tsr_gym.agents.runs.progress import checkpoints
from tsr_gym.agents.runs.trainer import resume_run
from tsr_gym.agents.strategies import naive


def status(*args):
    """Run `tsr` and return its exit status."""
    try:
        return cli.main([str(arg) for arg in args])
    except SystemExit as ended:
        return ended.code


def spent(run):
    """Return the tokens that the last line of a run reports."""
    last = records(run)[-1]
    return f"{last['sampled_tokens_total']:,} sampled and {last['prompt_tokens_total']:,} prompt tokens"


def test_flags_make_the_run_that_the_same_configuration_makes(capsys, undisturbed, base_model, tmp_path):
    run = tmp_path / "run"
    assert status(*train_flags(run, base_model)) == 0
    assert result(run) == result(undisturbed)
    assert (run / "run.toml").read_bytes() == (undisturbed / "run.toml").read_bytes()
    shown = capsys.readouterr()
    assert shown.out == f"{run}: {UPDATES} of {UPDATES} updates, {spent(run)}\n"
    evaluations = [line for line in shown.err.splitlines() if line.startswith("held out after")]
    assert [line.split()[3] for line in evaluations] == ["0", "2", "4", "5"]
    assert all("random 0." in line and "optimal 1.000" in line for line in evaluations)
    # Without a terminal a run of less than ten updates prints only the sources of its settings and its evaluations.
    sources = shown.err.splitlines()[0]
    assert [
        fact for fact in ("lr 0.002 (flag)", "critic_lr 0.002 (flag)", "minibatch 3 (flag)") if fact not in sources
    ] == []
    assert len(shown.err.splitlines()) == 1 + len(evaluations)
    # The run leaves nothing that the garbage collector may not take.
    assert gc.get_freeze_count() == 0


def without(args, *names):
    """Return a command line without some flags and their values."""
    for name in names:
        place = args.index(name)
        args = args[:place] + args[place + 2 :]
    return args


@pytest.mark.parametrize("card", ["as built", "older", "none"])
def test_settings_that_nobody_gave_come_from_the_models_card(capsys, base_model, tmp_path, card):
    model = shutil.copytree(base_model, tmp_path / "model")
    stored = json.loads((model / "tsr_gym.json").read_text())
    assert stored["learn"] == {"lr": 5e-4, "critic_lr": 1e-3}
    if card != "as built":
        stored.pop("learn")
        (model / "tsr_gym.json").write_text(json.dumps(stored))
    args = train_flags(tmp_path / "run", model, **{"--updates": 1, "--eval-every": 0, "--eval-instances": 1})
    given = () if card == "none" else ("--lr",)
    assert status(*without(args, *{"--lr", "--critic-lr"} - set(given))) == 0
    learn = tomllib.loads((tmp_path / "run" / "run.toml").read_text())["learn"]
    lr = 0.002 if given else 1e-6
    critic_lr, source = (1e-3, "card") if card == "as built" else (1e-5, "default")
    assert (learn["lr"], learn["critic_lr"]) == (lr, critic_lr)
    said = capsys.readouterr().err.splitlines()[0]
    assert f"lr {lr:g} ({'flag' if given else 'default'}), critic_lr {critic_lr:g} ({source})" in said


def test_a_run_that_stays_at_the_random_bar_says_so_once_with_advice(capsys, base_model, tmp_path):
    flags = {"--updates": 22, "--groups": 1, "--trajectories": 1, "--eval-every": 0, "--eval-instances": 8, "--lr": 0}
    # An answer of one token is none.
    assert status(*train_flags(tmp_path / "run", base_model, **flags, **{"--max-tokens": 1})) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("at the random bar")]
    (line,) = said
    assert line.startswith("at the random bar: success was 0.000 over the last 20 updates, random play has 0.")


def test_every_tenth_update_is_told_where_no_bar_can_be_drawn(capsys, base_model, tmp_path):
    flags = {"--updates": 10, "--groups": 1, "--trajectories": 1, "--eval-every": 0, "--eval-instances": 1}
    assert status(*train_flags(tmp_path / "run", base_model, **flags)) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("update ")]
    last = records(tmp_path / "run")[-1]
    assert line == (
        f"update 10: success {last['success']:.2f}  return {last['reward_mean']:.2f}  kept 1/1  "
        f"tokens {last['sampled_tokens_total']:,}"
    )


@pytest.mark.parametrize("spelling", ["--resume {}", "--resume={}"])
def test_a_finished_run_can_be_given_more_updates(capsys, undisturbed, tmp_path, spelling):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    assert status("train", *spelling.format(run).split(), "--updates", 6) == 0
    assert capsys.readouterr().out == f"{run}: 6 of 6 updates, {spent(run)}\n"
    assert [line["step"] for line in records(run)] == [1, 2, 3, 4, 5, 6]


def test_a_loss_that_is_not_finite_ends_the_run_and_spoils_nothing(capsys, base_model, tmp_path):
    run = tmp_path / "run"
    # The first step throws the parameters far away; the second one of the same update has nothing finite to learn from.
    assert status(*train_flags(run, base_model, **{"--lr": 1e10})) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert (
        "the policy's gradient became NaN or infinite, and the step was not taken: lower the learning rate" in message
    )
    assert [path.name for path in checkpoints(run)] == ["000000"]
    assert resume_run(run).progress.update == 0


def sending(number):
    """Return a strategy that sends this process a signal before it plays."""

    def strategy(tree):
        signal.raise_signal(number)
        yield from naive(tree)

    return strategy


interrupting = sending(signal.SIGINT)
terminating = sending(signal.SIGTERM)


def train_with(strategy, run, model, trajectories):
    flags = {"--search": f"tests.agents.cli.test_train:{strategy}", "--groups": 1, "--trajectories": trajectories}
    return status(*train_flags(run, model, **flags))


@pytest.mark.parametrize(("strategy", "exit_status"), [("interrupting", 130), ("terminating", 143)])
def test_a_signal_ends_the_run_after_its_update_with_a_checkpoint(capsys, base_model, tmp_path, strategy, exit_status):
    run = tmp_path / "run"
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert train_with(strategy, run, base_model, trajectories=1) == exit_status
    shown = capsys.readouterr()
    assert "finishing this update and writing a checkpoint; again to stop at once" in shown.err
    assert shown.err.endswith(f"resume: tsr train --resume {run} --trust {__name__}\n")
    assert shown.out == f"{run}: 1 of {UPDATES} updates, {spent(run)}\n"
    assert [path.name for path in checkpoints(run)] == ["000000", "000001"]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert status("train", "--resume", run, "--trust", __name__) == exit_status
    assert [line["step"] for line in records(run)] == [1, 2]


def test_a_long_update_shows_what_it_does(capsys, base_model, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "SILENCE", 0.01)
    monkeypatch.setattr("tsr_gym.agents.runs.loop.check_parity", lambda *args, **settings: time.sleep(0.6))
    assert status(*train_flags(tmp_path / "run", base_model, **{"--updates": 1, "--eval-instances": 2})) == 0
    shown = capsys.readouterr().err
    assert re.search(r"playing held-out instances, \d+ calls of the model and \d+ tokens so far \.\.\. \d+ s", shown)
    assert re.search(r"update 1: sampling, 0 calls of the model and 0 tokens so far", shown)


def test_a_second_signal_stops_at_once_and_spoils_nothing(capsys, base_model, tmp_path):
    run = tmp_path / "run"
    assert train_with("interrupting", run, base_model, trajectories=2) == 130
    shown = capsys.readouterr()
    assert shown.err.endswith(f"resume: tsr train --resume {run} --trust {__name__}\ntsr train: interrupted\n")
    assert shown.out == ""
    assert (run / "metrics.jsonl").exists() is False
    assert resume_run(run).progress.update == 0


def test_turns_are_credited_by_the_golden_answers_that_the_environment_gives(chat_model, tmp_path):
    args = train_flags(tmp_path / "run", chat_model, **{"--updates": 1, "--eval-every": 0, "--eval-instances": 1})
    args[args.index("sokoban")] = "retrieval_qa"
    flags = ("--algorithm", "grpo", "--estimator", "tspo", "--credit", "first_occurrence", "--env-set", "top_k=1")
    assert status(*args, *flags) == 0
    assert records(tmp_path / "run")[0]["success"] == 0.0
