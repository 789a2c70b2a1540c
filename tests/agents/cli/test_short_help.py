"""The short help: settings that are asked for first, in their groups, whether or not boxes can be drawn."""

import re
import sys
from dataclasses import dataclass, field
from io import BytesIO, TextIOWrapper

import pytest

from tsr_gym.agents import cli
from tsr_gym.agents.cli.short_help import short_help
from tsr_gym.agents.cli.train import FIRST


@dataclass(frozen=True)
class Engine:
    """What drives."""

    power: int = 3
    """How strong."""
    colour: str = "red"
    """How it looks."""


@dataclass(frozen=True)
class Wheels:
    """What turns."""

    count: int = 4
    """How many."""


@dataclass(frozen=True)
class Car:
    """A car."""

    engine: Engine = field(default_factory=Engine)
    wheels: Wheels = field(default_factory=Wheels)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_other_settings_and_groups_that_are_left_empty_are_left_out(monkeypatch, encoding):
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(BytesIO(), encoding=encoding))
    text = short_help(Car, ["--power"], prog="tsr drive")
    assert "How strong." in text
    assert "What drives." in text
    assert "--help" in text
    assert [words for words in ("How it looks.", "What turns.", "How many.") if words in text] == []
    assert text.endswith("tsr drive --help-all shows every setting.")


def test_the_short_help_of_training_shows_its_settings_and_no_others(capsys):
    assert cli.main(["train", "--help"]) == 0
    explained = re.findall(r"^[│ ] (--[a-z][a-z-]*)", capsys.readouterr().out, re.MULTILINE)
    assert set(explained) == set(FIRST)


def test_the_long_help_of_training_shows_all(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "--help-all"])
    assert ended.value.code == 0
    assert {"--clip-high", "--betas"} <= set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
