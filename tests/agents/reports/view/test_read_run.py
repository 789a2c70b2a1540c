"""Reading a run for the viewer: its numbers as columns, as far as its files are whole."""

import json

import pytest

from tsr_gym.agents.reports.view.read_run import read_run, whole_lines
from tsr_gym.agents.runs.config import TrainConfig


def write(folder, name, records):
    (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))


def update(step, **changes):
    known = {"success": 0.5, "entropy": 1.0, "groups": 4, "groups_kept": 3, "dropped": {"group_all_failed": 1}}
    return {"step": step, "sampled_tokens_total": 100 * step, **known, **changes}


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(TrainConfig(env="sokoban").to_json())
    write(folder, "metrics.jsonl", [update(1), update(2, entropy=0.5, dropped={"group_all_failed": 1, "long": 2})])
    write(folder, "evaluations.jsonl", [{"step": 0, "sampled_tokens_total": 0, "success": 0.1, "interval": [0.0, 0.2]}])
    return folder


def test_the_numbers_of_a_run_are_columns_over_updates_and_tokens(run):
    found = read_run(run)
    assert (found["env"], found["notes"]) == ("sokoban", [])
    assert found["updates"]["step"] == [1, 2]
    assert found["updates"]["tokens"] == [100, 200]
    assert found["updates"]["entropy"] == [1.0, 0.5]
    assert found["updates"]["turns"] == [None, None]
    assert (found["evaluations"]["success"], found["evaluations"]["interval"]) == ([0.1], [[0.0, 0.2]])
    assert found["about"]["search.search"] == TrainConfig(env="sokoban").search.search


def test_counters_add_up_what_filters_dropped(run):
    assert read_run(run)["counters"] == {"groups": 8, "kept": 6, "dropped": {"group_all_failed": 2, "long": 2}}


def test_what_diagnosis_finds_is_told(run):
    write(run, "metrics.jsonl", [update(step, equal_groups=1.0, success=0.0) for step in range(1, 21)])
    assert [finding["name"] for finding in read_run(run)["findings"]] == ["nothing to learn"]


def test_a_run_that_is_being_written_is_shown_as_far_as_it_is_whole(run):
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 3, "succ')
    found = read_run(run)
    assert found["updates"]["step"] == [1, 2]
    assert found["notes"] == ["metrics.jsonl, line 3: not whole; shown up to the line before"]


@pytest.mark.parametrize("line", ["[]", "7", '{"step": "1"}', '{"other": 1}', "[" * 100_000])
def test_a_line_that_is_no_record_ends_what_is_shown(tmp_path, line):
    (tmp_path / "log").write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    records, notes = whole_lines(tmp_path / "log")
    assert (records, len(notes)) == ([{"step": 1}], 1)


def test_numbers_that_json_cannot_hold_and_values_of_other_types_are_left_out(run):
    write(run, "metrics.jsonl", [update(1, entropy=float("nan"), success="half", dropped=3, groups=None)])
    found = read_run(run)
    assert (found["updates"]["entropy"], found["updates"]["success"]) == ([None], [None])
    json.dumps(found, allow_nan=False)


def test_an_empty_folder_is_a_run_of_which_nothing_is_known(tmp_path):
    found = read_run(tmp_path)
    assert (found["updates"]["step"], len(found["notes"])) == ([], 3)


def test_a_damaged_configuration_is_told_and_the_rest_is_shown(run):
    (run / "config.json").write_text("{")
    found = read_run(run)
    assert (found["label"], found["updates"]["step"]) == ("run", [1, 2])
    assert found["notes"][0].startswith("config.json: cannot be read")
