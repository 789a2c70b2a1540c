"""The help of every command: words for the values of settings, and only settings that the command uses."""

import re
import sys
from dataclasses import dataclass, field
from io import BytesIO, TextIOWrapper

import pytest

from tsr_gym.agents import cli
from tsr_gym.agents.cli.arguments import flags_of, parse, read_arguments
from tsr_gym.agents.cli.evaluate import UNUSED
from tsr_gym.agents.cli.train import FIRST

SUBCOMMANDS = ("webshop import", "webshop generate", "webshop serve", "retrieval index", "retrieval serve")
COMMANDS = (*cli.COMMANDS, *SUBCOMMANDS)
# A line of a help that explains a flag, with the border of a box or without.
EXPLAINED = re.compile(r"^[│ ] (--[a-z][a-z-]*)", re.MULTILINE)


def shown(capsys, command, flag="--help"):
    with pytest.raises(SystemExit) as ended:
        cli.main([*command.split(), flag])
    assert ended.value.code == 0
    return capsys.readouterr().out


def flag_of(name):
    return f"--{name.replace('_', '-')}"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_help_names_the_values_of_settings(capsys, command):
    text = shown(capsys, command, "--help-all" if command == "train" else "--help")
    assert text.startswith(f"usage: tsr {command} [-h]")
    assert not re.search(r"\bSTR\b|\{None\}", text)
    assert len(text.splitlines()) > 3


def test_evaluation_has_no_settings_of_training(capsys):
    text = shown(capsys, "eval")
    assert {*map(flag_of, UNUSED)} & {*EXPLAINED.findall(text)} == set()
    assert "--search CALL" in text
    with pytest.raises(SystemExit) as refused:
        cli.main(["eval", "default", "--env", "sokoban", "--groups", "3"])
    assert refused.value.code == 2
    assert "--groups" in capsys.readouterr().err


def test_the_short_help_of_training_shows_its_settings_and_the_long_one_all(capsys):
    text = shown(capsys, "train")
    door = {"--recipe", "--config", "--dry-run", "--n", "--width", "--branching", "--depth", "--keep"}
    assert {*EXPLAINED.findall(text)} == {*map(flag_of, FIRST)} | door
    assert "tsr train --help-all" in text
    assert {"--clip-high", "--betas", "--ray"} <= {*EXPLAINED.findall(shown(capsys, "train", "--help-all"))}
    assert "A new number of updates; the run's own by default." in shown(capsys, "train --resume runs/x")


@dataclass(frozen=True)
class Engine:
    """The engine."""

    power: int = 3
    """Power of
    the engine."""
    colour: str = "red"
    """Its colour."""


@dataclass(frozen=True)
class Car:
    """A car."""

    engine: Engine = field(default_factory=lambda: Engine(power=5))
    doors: tuple[int, ...] = (4,)
    """Numbers of doors."""


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_help_can_be_cut_to_some_settings(monkeypatch, encoding):
    written = TextIOWrapper(BytesIO(), encoding=encoding, write_through=True)
    monkeypatch.setattr(sys, "stdout", written)
    with pytest.raises(SystemExit):
        parse(flags_of(Car, only=["power"]), ["--help"], prog="tsr drive")
    written.seek(0)
    text = written.read()
    assert "Power of the engine. (default: 5)" in text
    assert "Its colour." not in text


def test_flags_become_the_sections_that_they_configure():
    assert read_arguments(Car, ["--colour", "blue"], prog="tsr drive") == Car(Engine(power=5, colour="blue"))
    assert read_arguments(Car, ["--doors", "2", "3"], prog="tsr drive").doors == (2, 3)
