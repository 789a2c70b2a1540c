"""The help of every command: one column, words for what settings take, and only settings that it uses."""

import re
from dataclasses import dataclass

import pytest

from tsr_gym.agents import cli
from tsr_gym.agents.cli.evaluate import UNUSED
from tsr_gym.agents.cli.help_text import help_text

SUBCOMMANDS = ("webshop import", "webshop generate", "webshop serve", "retrieval index", "retrieval serve")
COMMANDS = (*cli.COMMANDS, *SUBCOMMANDS)


def shown(capsys, command, flag="--help"):
    try:
        status = cli.main([*command.split(), flag])
    except SystemExit as ended:
        status = ended.code
    assert status == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", ["80", "240"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_help_is_one_column_and_names_what_settings_take(capsys, monkeypatch, command, columns):
    monkeypatch.setenv("COLUMNS", columns)
    text = shown(capsys, command, "--help-all" if command == "train" else "--help")
    assert text.startswith(f"usage: tsr {command} [-h]")
    assert not re.search(r"\bSTR\b|\{None\}", text)
    boxed = [line for line in text.splitlines() if line.startswith(("│", "╭", "╰"))]
    # A box beside another one would have a second border inside.
    assert [line for line in boxed if line.count("│") not in (0, 2) or line.count("╭") > 1] == []
    assert len(text.splitlines()) > 3


def test_evaluation_shows_and_takes_no_settings_of_training(capsys):
    text = shown(capsys, "eval")
    assert [flag for flag in UNUSED if re.search(rf"^[│ ] {flag}\b", text, re.MULTILINE)] == []
    assert "--search CALL" in text
    assert cli.main(["eval", "default", "--env", "sokoban", "--groups", "3", "--recipe=paper"]) == 2
    assert capsys.readouterr().err == "tsr eval: there is no use for --groups, --recipe here: leave it out\n"


def test_a_word_that_needs_room_moves_the_rest_to_its_own_line(capsys):
    lines = shown(capsys, "eval").splitlines()
    at = next(index for index, line in enumerate(lines) if "--split {train,valid,test,all,none}" in line)
    assert "Instances to play." not in lines[at]
    assert "Instances to play." in lines[at + 1]
    assert lines[at].rstrip(" │").endswith("}")
    assert lines[at + 1].index("Instances") == next(line for line in lines if "How many." in line).index("How many.")


@dataclass(frozen=True)
class Told:
    """What is told."""

    often: int = 3
    """Words that the source
    has on lines of their own."""
    long: int = 4
    """Words that are more than stand on one line of a narrow terminal, which the source
    breaks elsewhere."""


def test_the_words_for_a_setting_run_on_wherever_its_source_breaks_them(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = help_text(Told, (), prog="tsr tell").splitlines()
    # With borders where they can be drawn.
    assert [line.strip("│ ") for line in lines if re.match(r"[│ ] (--| {5})", line)] == [
        "--often INT  Words that the source has on lines of their",
        "own. (default: 3)",
        "--long INT   Words that are more than stand on one line",
        "of a narrow terminal, which the source",
        "breaks elsewhere. (default: 4)",
    ]


def test_settings_that_are_told_of_by_others_keep_their_own_words(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert re.search(r"^[│ ] --samples INT\b", shown(capsys, "play"), re.MULTILINE)
    assert "[--kind CALL]" in shown(capsys, "export").splitlines()[0]
    # A line of a description that begins with a flag would be taken for the setting.
    assert "filter: beam(width=2, branching=4)." in " ".join(shown(capsys, "train").replace("│", " ").split())
