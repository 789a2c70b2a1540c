"""Readings: of a node whose model read a form of its own, people read the same state in the environment's."""

import gymnasium as gym
import pytest

from tests.agents.reports.view.trees import shelf_tree, small_tree, sokoban_tree
from tsr_gym.agents.reports.view.read_tree import read_tree
from tsr_gym.agents.reports.view.readings import find_reading
from tsr_gym.agents.reports.view.site import Site


@pytest.fixture
def saved(tmp_path):
    tree = sokoban_tree(obs_type="compact", solution_length=[3, 6])
    tree.save(tmp_path / "tree.jsonl")
    return tree, tmp_path / "tree.jsonl"


def test_people_read_the_state_of_a_node_and_not_what_was_made_for_the_model(saved):
    tree, file = saved
    seen = read_tree(file)
    read = find_reading(seen)
    board = gym.make("tsr/Sokoban-v0", solution_length=[3, 6]).unwrapped
    played = gym.make("tsr/Sokoban-v0", obs_type="compact", solution_length=[3, 6]).unwrapped
    played.reset(seed=1)
    for index in (0, len(tree.nodes) - 1):
        text, buttons = read(seen.snapshots[index])
        played.set_env_state(tree.nodes[index].snapshot.layers[-1].state)
        assert text == board.observe(played.state)
        assert text.startswith("######")
        assert tree.nodes[index].observation.startswith("P ")
        assert buttons == ()


def test_a_page_has_its_own_buttons_and_what_the_model_read_beside_it(tmp_path):
    shelf_tree().save(tmp_path / "shelf.jsonl")
    site = Site([tmp_path / "shelf.jsonl"])
    (name,) = site.sources.trees
    found = site.data(f"node/1/{name}")
    assert found["page"] == "Instruction: [SEP] Buy <b>two</b> [SEP] Buy Now [SEP] 2 left"
    assert found["observation"] == "shelf 2"
    assert found["buttons"] == ["buy now"]


def test_a_node_that_is_drawn_needs_no_words(saved):
    _, file = saved
    site = Site([file])
    (name,) = site.sources.trees
    found = site.data(f"node/0/{name}")
    assert found["picture"] is not None
    assert found["page"] is None


def test_where_people_read_what_the_model_did_or_nothing_is_known_there_is_no_reading(saved, tmp_path):
    _, file = saved
    sokoban_tree().save(tmp_path / "plain.jsonl")
    small_tree().save(tmp_path / "small.jsonl")
    assert find_reading(read_tree(tmp_path / "plain.jsonl")) is None
    assert find_reading(read_tree(tmp_path / "small.jsonl")) is None
    # Modules that a file names are not imported.
    file.write_text(file.read_text().replace('"env": "tsr/Sokoban-v0"', '"env": "antigravity:tsr/Sokoban-v0"'))
    assert find_reading(read_tree(file)) is None


def test_a_damaged_snapshot_is_not_read(saved):
    seen = read_tree(saved[1])
    read = find_reading(seen)
    assert read(seen.snapshots[0][:-8] + "AAAAAAA=") is None
