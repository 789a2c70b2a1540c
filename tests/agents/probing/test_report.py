"""Reports of calibrations: every number in its cell, unknown numbers as a dash, and files that can be read again."""

import json

import pytest

from tsr_gym.agents.episodes.intervals import Interval
from tsr_gym.agents.probing.calibrate import Calibration, CalibrationConfig, SettingResult
from tsr_gym.agents.probing.rankings import Drops, SiblingRanking, TurnRanking
from tsr_gym.agents.probing.report import calibration_heading, calibration_tables, save_calibration

SIBLINGS = SiblingRanking(
    7, 3, Interval(0.5, 0.25, 0.75), Interval(0.4, 0.3, 0.5), Interval(0.125, 0.1, 0.2), Interval(0.25, 0.2, 0.3)
)
DROPS = Drops(1200, Interval(0.5, 0.4, 0.6), 34, Interval(0.25, 0.2, 0.3), Interval(0.75, 0.7, 0.8), None)
UNDECIDED = SiblingRanking(0, 4, None, None, None, None)


def setting(budget, siblings=SIBLINGS, drops=DROPS, width=2, tokens=0.0):
    label = f"beam(width={width}, branching={budget})"
    gain = Interval(0.25, -0.125, 0.5)
    return SettingResult(label, width, budget, siblings, drops, Interval(0.5, 0.4, 0.6), gain, 35.25, tokens)


def calibration(**changes):
    fields = {
        "config": CalibrationConfig(env="frozenlake", score="FrozenLakeScore", budgets=(1, 4)),
        "budget": "branching",
        "turns": [TurnRanking(1, 1024, 0.375, Interval(0.9, 0.8, 0.95), 0.8), TurnRanking(2, 12, 0.0, None, None)],
        "siblings": SIBLINGS,
        "alone": Interval(0.25, 0.2, 0.3),
        "alone_env_steps": 5.0,
        "alone_sampled_tokens": 0.0,
        "random": Interval(0.2, 0.2, 0.2),
        "optimal": 0.5,
        "settings": [setting(1, UNDECIDED, Drops(0, None, 20, Interval(0.1, 0.0, 0.2), None, None)), setting(4)],
        "unknown": [],
    }
    return Calibration(**{**fields, **changes})


def test_every_number_stands_in_its_cell():
    ranking, drops, gains = calibration_tables(calibration())
    assert ranking.rows == [
        ("turn 1", "1,024", "0.375", "0.90 [0.80, 0.95]", "0.80"),
        ("turn 2", "12", "0.000", "-", "-"),
        ("among candidates", "7 sets", "", "0.50 [0.25, 0.75]", "0.40 [0.30, 0.50]"),
    ]
    assert "3 further sets have equal values" in ranking.caption
    assert "loses 0.125 [0.100, 0.200] of value, a random one 0.250 [0.200, 0.300]" in ranking.caption
    single = ("beam(width=2, branching=1)", "-", "0", "-", "-", "20", "10.0 [0.0, 20.0]", "-")
    four = ("beam(width=2, branching=4)", "0.40 [0.30, 0.50]", "1,200", "50.0 [40.0, 60.0]", "75.0 [70.0, 80.0]")
    assert drops.rows == [single, (*four, "34", "25.0 [20.0, 30.0]", "-")]
    assert gains.rows == [
        ("policy alone", "25.0 [20.0, 30.0]", "", "5.0", ""),
        *[
            (f"beam(width=2, branching={budget})", "50.0 [40.0, 60.0]", "+25.0 [-12.5, +50.0]", "35.2", "")
            for budget in (1, 4)
        ],
    ]
    # An exact bar has no interval.
    assert "Random play: 20.0 %; best possible on these instances: 50.0 %" in gains.caption
    for table in (ranking, drops, gains):
        assert {len(row) for row in table.rows} == {len(table.columns)}


def without_values():
    return calibration(
        siblings=None,
        turns=[],
        optimal=None,
        settings=[setting(4, None, None, tokens=1234.5)],
        unknown=["It is not known."],
    )


def test_without_exact_values_only_play_is_reported():
    (gains,) = calibration_tables(without_values())
    assert gains.rows[-1][-1] == "1,234"
    assert "best possible on these instances: not known" in gains.caption


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, "FrozenLakeScore on frozenlake, preset paper, split test, 128 instances; candidates by random play"),
        ({"split": None, "seeds": 3}, "preset paper, 128 instances x 3 seeds;"),
        ({"model": "default"}, "candidates by default at temperature 1, noise fresh"),
        ({"noise": "same"}, "noise same (clairvoyant)"),
        ({"repeats": 4, "risk": 0.25}, "noise fresh x 4 draws, quantile 0.25"),
    ],
    ids=str,
)
def test_the_heading_names_score_world_and_player(changes, wanted):
    config = CalibrationConfig(env="frozenlake", **{"score": "FrozenLakeScore", **changes})
    assert wanted in calibration_heading(calibration(config=config))


@pytest.mark.parametrize(
    "report",
    [calibration(), without_values(), calibration(turns=[], siblings=UNDECIDED)],
    ids=["all", "no values", "undecided"],
)
def test_numbers_and_picture_are_written(tmp_path, report):
    numbers, picture = save_calibration(report, tmp_path / "new" / "folder")
    read = json.loads(numbers.read_text())
    assert read["what"] == calibration_heading(report)
    assert read["settings"][-1]["success"] == [0.5, 0.4, 0.6]
    assert read["config"]["budgets"] == [1, 4]
    assert picture.read_bytes().startswith(b"\x89PNG")
