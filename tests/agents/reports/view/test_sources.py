"""Sources: which runs and trees some paths stand for, and by which names."""

import pytest

from tests.agents.reports.view.trees import small_tree
from tsr_gym.agents.reports.view.sources import find_sources
from tsr_gym.errors import ConfigError


def make_run(folder, *trees):
    (folder / "trees").mkdir(parents=True)
    (folder / "metrics.jsonl").touch()
    for name in trees:
        (folder / "trees" / name).parent.mkdir(exist_ok=True)
        small_tree().save(folder / "trees" / f"{name}.jsonl")
    return folder


def test_a_run_has_its_name_and_its_trees_bear_it(tmp_path):
    run = make_run(tmp_path / "beam", "000004/00-01", "000004/00-00")
    found = find_sources([run])
    assert dict(found.runs) == {"beam": run}
    assert list(found.trees) == ["beam/000004/00-00", "beam/000004/00-01"]


def test_a_folder_of_runs_stands_for_all_of_them(tmp_path):
    make_run(tmp_path / "b")
    make_run(tmp_path / "a", "x")
    found = find_sources([tmp_path])
    assert (list(found.runs), list(found.trees)) == (["a", "b"], ["a/x"])


def test_runs_of_one_name_are_told_apart(tmp_path):
    found = find_sources([make_run(tmp_path / "one" / "beam", "x"), make_run(tmp_path / "two" / "beam", "x")])
    assert (list(found.runs), list(found.trees)) == (["beam", "beam-2"], ["beam/x", "beam-2/x"])


def test_files_and_folders_of_trees_need_no_run(tmp_path):
    small_tree().save(tmp_path / "lone.jsonl")
    found = find_sources([tmp_path / "lone.jsonl", tmp_path])
    assert (dict(found.runs), list(found.trees)) == ({}, ["lone", f"{tmp_path.name}/lone"])


@pytest.mark.parametrize(("path", "message"), [("nowhere", "found nothing"), (".", "found neither a run nor trees")])
def test_a_path_that_leads_to_nothing_is_refused(tmp_path, path, message):
    with pytest.raises(ConfigError, match=message):
        find_sources([tmp_path / path])


def test_no_path_at_all_is_refused():
    with pytest.raises(ConfigError, match="wanted the folder of a run"):
        find_sources([])
