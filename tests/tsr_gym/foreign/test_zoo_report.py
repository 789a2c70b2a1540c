"""The report of the zoo's runs, and that the documentation shows the committed one."""

import json

from tests.conftest import ROOT
from tests.zoo.report import report, table

ROWS = [
    {"group": "Atari", "name": "ALE/Pong-v5", "outcome": "exact", "reason": "saved"},
    {"group": "Atari", "name": "ALE/Golf-v5", "outcome": "replay", "reason": "not read back"},
    {"group": "one wrapper", "name": "Pong + RecordVideo", "outcome": "refused", "reason": "it writes files"},
    {"group": "one wrapper", "name": "CartPole + Resize", "outcome": "does not fit", "reason": "no picture"},
    {"group": "one wrapper", "name": "CartPole + RecordVideo", "outcome": "refused", "reason": "it writes files"},
]


def test_a_report_counts_every_stack_and_gives_every_refusal_with_its_reason():
    found = report(ROWS, full=False)
    assert found["counts"] == {"Atari": {"exact": 1, "replay": 1}, "one wrapper": {"refused": 2, "does not fit": 1}}
    assert [row["name"] for row in found["reasons"]] == ["CartPole + RecordVideo", "Pong + RecordVideo"]
    assert {row["reason"] for row in found["reasons"]} == {"it writes files"}
    assert found["names"]["Atari"] == {"exact": ["ALE/Pong-v5"], "replay": ["ALE/Golf-v5"]}


def test_the_table_shows_the_outcomes_that_there_are():
    assert table(report(ROWS, full=False)).splitlines() == [
        "| stacks | exact | replay | refused | does not fit |",
        "|---|---:|---:|---:|---:|",
        "| Atari | 1 | 1 |  |  |",
        "| one wrapper |  |  | 2 | 1 |",
    ]


def test_the_documentation_shows_the_committed_report_in_which_nothing_is_inexact():
    found = json.loads((ROOT / "docs" / "gym_zoo.json").read_text(encoding="utf-8"))
    assert table(found) in (ROOT / "docs" / "any_environment.md").read_text(encoding="utf-8")
    outcomes = {outcome for counts in found["counts"].values() for outcome in counts}
    assert outcomes <= {"exact", "deepcopy", "replay", "refused", "not built", "does not fit"}
    for group, held in found["names"].items():
        assert {outcome: len(names) for outcome, names in held.items()} == found["counts"][group]
