"""The site: names of the runs and trees at some paths, and the data of a real run by address."""

import shutil

import pytest

from tests.agents.reports.view.trees import small_tree
from tsr_gym.agents.reports.view.site import Site, find_sources
from tsr_gym.errors import ConfigError
from tsr_gym.tree import Tree


def make_run(folder, *trees):
    (folder / "trees").mkdir(parents=True)
    (folder / "metrics.jsonl").touch()
    for name in trees:
        (folder / "trees" / name).parent.mkdir(exist_ok=True)
        small_tree().save(folder / "trees" / f"{name}.jsonl")
    return folder


def test_the_names_of_a_runs_trees_begin_with_its_name(tmp_path):
    run = make_run(tmp_path / "beam", "000004/00-01", "000004/00-00")
    sources = find_sources([run])
    assert dict(sources.runs) == {"beam": run}
    assert list(sources.trees) == ["beam/000004/00-00", "beam/000004/00-01"]


def test_a_folder_of_runs_stands_for_all_of_them(tmp_path):
    make_run(tmp_path / "b")
    make_run(tmp_path / "a", "x")
    sources = find_sources([tmp_path])
    assert (list(sources.runs), list(sources.trees)) == (["a", "b"], ["a/x"])


def test_runs_of_one_name_get_different_names(tmp_path):
    sources = find_sources([make_run(tmp_path / "one" / "beam", "x"), make_run(tmp_path / "two" / "beam", "x")])
    assert (list(sources.runs), list(sources.trees)) == (["beam", "beam-2"], ["beam/x", "beam-2/x"])


def test_files_and_folders_of_trees_need_no_run(tmp_path):
    small_tree().save(tmp_path / "lone.jsonl")
    sources = find_sources([tmp_path / "lone.jsonl", tmp_path])
    assert (dict(sources.runs), list(sources.trees)) == ({}, ["lone", f"{tmp_path.name}/lone"])


@pytest.mark.parametrize(("path", "message"), [("nowhere", "found nothing"), (".", "found neither a run nor trees")])
def test_a_path_without_runs_and_trees_is_refused(tmp_path, path, message):
    with pytest.raises(ConfigError, match=message):
        find_sources([tmp_path / path])


def test_no_path_at_all_is_refused():
    with pytest.raises(ConfigError, match="wanted the folder of a run"):
        find_sources([])


@pytest.fixture
def run(undisturbed, tmp_path):
    return shutil.copytree(undisturbed, tmp_path / "run")


def test_a_run_of_the_trainer_is_shown_with_its_trees_tokens_prompts_and_pictures(run):
    site = Site([run])
    overview = site.data("overview")
    (shown,) = overview["runs"]
    assert (shown["name"], shown["env"], shown["notes"]) == ("run", "sokoban", [])
    assert shown["updates"]["step"] == [1, 2, 3, 4, 5]
    assert all(value is not None for value in shown["updates"]["entropy"])
    name = overview["trees"][0]
    tree = Tree.load(site.sources.trees[name])
    assert site.data(f"tree/{name}")["parent"] == [node.parent for node in tree.nodes]
    node = site.data(f"node/1/{name}")
    assert node["logprobs"] == pytest.approx(list(tree.nodes[1].candidate.logprobs), abs=1e-6)
    # The prompt of the embedded model ends with a tag that the answer continues.
    assert node["prompt"].endswith("<answer>")
    assert f"<answer>{''.join(node['tokens'])}".replace(" ", "") == node["answer"].replace(" ", "")
    assert node["picture"].startswith("data:image/png;base64,")


def test_a_run_in_progress_is_read_again(run):
    site = Site([run])
    before = site.data("overview")
    new = run / "trees" / "000009"
    new.mkdir()
    shutil.copy(site.sources.trees[before["trees"][0]], new / "00-00.jsonl")
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 6, "success": 1.0}\n')
    after = site.data("overview")
    assert after["trees"][-1] == "run/000009/00-00"
    assert after["runs"][0]["updates"]["success"][-1] == 1.0
    assert site.data("node/0/run/000009/00-00")["node"] == 0


def test_every_tree_has_a_summary(run):
    site = Site([run])
    assert list(site.data("summaries/0")) == site.data("overview")["trees"]


@pytest.mark.parametrize("address", ["", "overview/x", "tree/", "tree/run/none", "node/1", "node//run", "summaries/-1"])
def test_there_is_nothing_at_other_addresses(run, address):
    with pytest.raises(LookupError):
        Site([run]).data(address)
