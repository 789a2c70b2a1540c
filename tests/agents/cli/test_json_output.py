"""JSON in a file or in place of words: which of the two a command line means, and that nothing else is printed."""

import json

import pytest

from tsr_gym.agents import cli
from tsr_gym.agents.cli.output import with_json


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("", ""),
        ("a --json", "a --json -"),
        ("--json --seed 1", "--json - --seed 1"),
        *[(words, words) for words in ("--json x.json a", "--json=x.json")],
    ],
)
def test_without_a_file_it_is_the_standard_output(words, wanted):
    assert with_json(words.split()) == wanted.split()


def test_a_calibration_and_a_probe_can_be_printed_as_json(capsys):
    few = ["--score", "FrozenLakeScore", "--instances", "4", "--widths", "1", "--budgets", "2"]
    assert cli.main(["calibrate", "frozen_lake", *few, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["instances"] == 4
    assert cli.main(["probe", "frozen_lake", *FEW, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) >= 1


FEW = ["--model", "random", "--instances", "2", "--search", "beam(width=1, branching=2)"]
