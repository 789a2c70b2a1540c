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


def test_it_knows_its_version_and_is_installed_as_tsr(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"
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


def status_of(words):
    """Run `tsr` and return its exit status."""
    try:
        return cli.main(words.split())
    except SystemExit as ended:
        return ended.code


# What cannot be done: a command line, its status, and a fact of its one message. Names with a typo are in
# test_quick_answers.py; the settings themselves are tested where they are checked.
REFUSED = [
    ("train", 2, "tsr train ENV"),
    ("train sokoban --wings 2", 2, "--wings"),
    ("train sokoban --groups many", 2, "many"),
    ("train sokoban --noise loud", 2, "loud"),
    ("train sokoban --lr -1", 2, "wanted lr >= 0, got -1.0"),
    ("train sokoban --search best_of_n --n 2", 2, "wanted keep of at most the n=2 episodes, got 16"),
    ("train sokoban --device cuda:99", 2, "wanted device cuda:99"),
    ("train sokoban --history some", 2, "got 'some'"),
    ("train sokoban --preset secret", 2, "secret"),
    ("train sokoban --match-tokens none", 2, "match_tokens: wanted a run of at least 200 updates, none has 0"),
    ("train sokoban --model nowhere", 2, "nowhere: wanted the folder of a Hugging Face model with config.json"),
    ("train sokoban --engine openai --model m", 2, "a model behind a server cannot be trained"),
    ("train --resume .", 2, "wanted the folder of a run with run.toml and a checkpoint, found none"),
    ("train --resume . --lr 1", 2, "stands alone or with --updates, --total-tokens, --trust, "),
    ("base-model sokoban", 2, "--out"),
    ("base-model frozen_lake --out model --env-set max_actions=null", 2, "no oracle with these settings"),
    ("play sokoban --seed x", 2, "x"),
    ("play nowhere:Env-v0", 2, "there is no environment 'nowhere:Env-v0' (ModuleNotFoundError"),
    ("play CartPole-v1", 2, "wanted an environment of text, CartPole-v1 is a CartPoleEnv"),
    ("play CartPole-v1 --env-set wheels=4", 2, "unexpected keyword argument 'wheels'"),
    ("play sokoban --env-set wings", 2, "wanted KEY=VALUE, got 'wings'"),
    ("play sokoban --model nowhere", 2, "nowhere: wanted the folder of a Hugging Face model"),
    ("play sokoban --samples 0", 2, "wanted --samples of at least 1, got 0"),
    ("play sokoban --score FrozenLakeScore", 2, "FrozenLakeScore rates a FrozenLakeState"),
    ("eval", 2, "SOURCE"),
    ("eval nowhere", 2, "wanted the folder of a Hugging Face model with config.json, found none"),
    ("eval default", 2, "wanted --env for the default model"),
    ("eval nowhere --instances 0", 2, "wanted eval_instances as a whole number >= 1, got 0"),
    ("eval sokoban --engine openai", 2, "wanted --model NAME"),
    ("eval sokoban --engine openai --model m --base-url nowhere", 2, "wanted a base_url"),
    ("envs sokobann", 2, "did you mean sokoban?"),
    ("completion csh", 2, "bash"),
    ("export none --out x.jsonl --kind poems", 2, "wanted kind of preferences, step-values"),
    ("audit none.jsonl", 2, "none.jsonl"),
    ("probe frozenlake --model random --search beam --score Nonsense", 2, "there is no scorer 'Nonsense'"),
    ("report", 2, "wanted the folder of at least one run"),
    ("report none", 2, "none: wanted the folder of a run with run.toml, found none"),
    ("view", 2, "wanted the folder of a run or a file of a tree, got none"),
    ("view nowhere", 2, "nowhere: wanted the folder of a run or a file of a tree, found nothing"),
    ("webshop import --out x", 2, "wanted a folder or files to import, got none"),
    ("webshop generate", 2, "wanted --out DIR for a catalogue or --files DIR for JSON files, got neither"),
    ("webshop generate --products 0 --out x", 2, "wanted --products >= 1, got 0"),
]


@pytest.mark.parametrize(("words", "status", "fact"), REFUSED, ids=[words for words, *_ in REFUSED])
def test_what_cannot_be_done_is_refused_before_any_work(capsys, monkeypatch, tmp_path, words, status, fact):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    assert status_of(words) == status
    shown = capsys.readouterr()
    # The reader of arguments frames its messages.
    message = " ".join(shown.err.replace("│", " ").split())
    assert fact in message
    assert f"tsr {words.split()[0]}" in message
    assert "Traceback" not in message
    assert (shown.out, list(tmp_path.iterdir())) == ("", [])


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
