"""The site: what a run of the trainer has to show, by address."""

import shutil

import pytest

from tsr_gym.agents.reports.view.site import Site
from tsr_gym.tree import Tree


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
    # The prompt of the embedded model ends with the tag that the answer goes on from.
    assert node["prompt"].endswith("<answer>")
    assert f"<answer>{''.join(node['tokens'])}".replace(" ", "") == node["said"].replace(" ", "")
    assert node["picture"].startswith("data:image/png;base64,")


def test_a_run_that_goes_on_is_read_again(run):
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
