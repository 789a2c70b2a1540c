"""The `tsr` command: every command explains itself, and every failure is one message and an exit status."""

import re
import subprocess
import sys
from dataclasses import fields
from importlib.metadata import entry_points

import pytest

from tests.conftest import ROOT
from tsr_gym import CheckpointError, ConfigError
from tsr_gym.agents import cli
from tsr_gym.agents.cli.evaluate import UNUSED
from tsr_gym.agents.config import RunConfig
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.learning.settings import LearnConfig, Objective
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.teaching.base_recipe import BaseRecipe
from tsr_gym.version import __version__

TRAIN = (TaskConfig, SearchConfig, ModelConfig, LearnConfig, Objective, RunConfig)
# A section, not a flag.
SECTIONS = ("objective",)


@pytest.mark.parametrize("args", [[], ["-h"], ["--help"], ["help"]], ids=str)
def test_asked_for_help_it_lists_its_commands(capsys, args):
    assert cli.main(args) == 0
    shown = capsys.readouterr().out
    assert "usage: tsr COMMAND [OPTIONS]" in shown
    for name in ("play", "base-model", "train", "eval", "report"):
        assert re.search(rf"^  {name} +\w+", shown, re.MULTILINE)


def test_it_knows_its_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_it_is_installed_as_tsr():
    (script,) = entry_points(group="console_scripts", name="tsr")
    assert script.load() is cli.main


def help_of(command, capsys, monkeypatch):
    """Return a command's help as one line of words, without the boxes around it."""
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help-all" if command == "train" else "--help"])
    assert ended.value.code == 0
    return " ".join(re.sub("[│─╭╮╰╯]", " ", capsys.readouterr().out).split())


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("play", ["Play an environment in the terminal.", "--seed INT First instance", "(default: 0)"]),
        ("base-model", ["--out PATH", "(required)", "--hidden INT Width of the model. (default: 64)"]),
        (
            "train",
            [
                "Continue a run: tsr train --resume FOLDER.",
                "--groups INT Task instances per update, the paper's P (paper: 8). (default: 8)",
                "--trajectories INT",
                "--clip-high FLOAT How far it may rise above 1 (paper). (default: 0.28)",
                "--estimator CALL Advantages: auto (gae for ppo, grpo for grpo)",
                "--seed INT Seed of everything random in the run. (default: 0)",
            ],
        ),
        (
            "eval",
            [
                "without search or with it",
                "--instances INT Number of instances. (default: 256)",
                "--at-temperature FLOAT",
            ],
        ),
        ("report", ["Folders of runs", "--out PATH File for the curves. (default: report.png)"]),
    ],
)
def test_every_command_explains_its_settings_and_their_defaults(capsys, monkeypatch, command, wanted):
    shown = help_of(command, capsys, monkeypatch)
    assert shown.startswith(f"usage: tsr {command} [-h]")
    assert [text for text in wanted if text not in shown] == []


def test_the_help_of_resuming_lists_its_own_settings(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "--resume", "runs/x", "--help"])
    assert ended.value.code == 0
    assert "A new number of updates; the run's own by default." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "kinds"),
    [("train", TRAIN), ("eval", (TaskConfig, SearchConfig, ModelConfig)), ("base-model", (BaseRecipe,))],
)
def test_no_setting_is_left_out_and_each_has_words_and_a_default(capsys, monkeypatch, command, kinds):
    shown = re.sub(r", --no-[a-z-]+", " ", help_of(command, capsys, monkeypatch))
    hidden = UNUSED if command == "eval" else ()
    for field in (field for kind in kinds for field in fields(kind) if field.name not in SECTIONS):
        flag = f"--{field.name.replace('_', '-')} "
        if field.name in hidden:
            continue
        text = shown.partition(flag)[2].partition(" --")[0]
        assert re.search(r"[a-z]{3,}.*\(default: ", text), f"{flag}: {text}"


@pytest.mark.parametrize(("word", "hint"), [("fly", ""), ("trian", ": did you mean train?")])
def test_an_unknown_command_is_named_with_the_closest_one_and_the_list(capsys, word, hint):
    assert cli.main([word, "--help"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"tsr: there is no command {word!r}{hint}\n")
    assert "base-model" in shown.err


def fails_with(error):
    def command(args):
        raise error

    return command


too_many = fails_with(ConfigError("wanted one, got two"))
torn = fails_with(CheckpointError("torn"))
full = fails_with(OSError(28, "No space left on device", "report.png"))
interrupted = fails_with(KeyboardInterrupt())


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("too_many", 2, "tsr fly: wanted one, got two\n"),
        ("torn", 1, "tsr fly: torn\n"),
        ("full", 1, "tsr fly: [Errno 28] No space left on device: 'report.png'\n"),
        ("interrupted", 130, "tsr fly: interrupted\n"),
    ],
)
def test_a_failure_is_one_line_and_a_status(capsys, monkeypatch, name, status, message):
    monkeypatch.setitem(cli.COMMANDS, "fly", (f"tests.agents.cli.test_tsr:{name}", "leave the ground"))
    assert cli.main(["fly"]) == status
    assert capsys.readouterr() == ("", message)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train", "sokoban", "--wings", "2"], "--wings"),
        (["train", "sokoban", "--groups", "many"], "many"),
        (["train", "sokoban", "--noise", "loud"], "loud"),
        (["base-model", "sokoban"], "--out"),
        (["play", "sokoban", "--seed", "x"], "x"),
        (["eval"], "SOURCE"),
    ],
    ids=str,
)
def test_arguments_that_cannot_be_read_are_named_with_status_2(capsys, args, message):
    with pytest.raises(SystemExit) as ended:
        cli.main(args)
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert f"tsr {args[0]} --help" in shown.err
    assert "Traceback" not in shown.err


def test_training_without_an_environment_asks_for_one(capsys):
    assert cli.main(["train"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert "tsr train ENV" in shown.err


def test_a_closed_pipe_prints_no_error():
    words = [sys.executable, "-m", "tsr_gym", "completion", "bash"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("args", "words"), [(["train", "sokoban", "--seach", "beam"], "--search CALL"), (["eval"], "SOURCE")], ids=str
)
def test_a_wrong_command_line_is_explained_in_the_words_of_the_help(capsys, args, words):
    with pytest.raises(SystemExit) as ended:
        cli.main(args)
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    # With a border where one can be drawn.
    assert re.search(rf"^[│ ] +{words} ", shown.err, re.MULTILINE)
    assert "STR" not in shown.err
    boxed = [line for line in shown.err.splitlines() if line.startswith("│")]
    assert len({len(line) for line in boxed}) <= 1
