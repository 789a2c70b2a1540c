"""Views of snapshots: the environment's picture of a node's state as a PNG, and its text for people."""

import base64
from io import BytesIO

import gymnasium as gym
import numpy as np
import pytest
from matplotlib.image import imread

from tests.agents.reports.view.trees import shelf_tree, small_tree, sokoban_tree
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.reports.view.describe_tree import find_drawing, find_reading, png
from tsr_gym.agents.reports.view.read_files import read_tree
from tsr_gym.agents.reports.view.site import Site

HEAD = "data:image/png;base64,"


def pixels_of(data):
    """Return the pixels of a PNG as another library reads them."""
    return (255 * imread(BytesIO(data))[..., :3]).round().astype(np.uint8)


@pytest.fixture
def saved(tmp_path):
    tree = sokoban_tree(solution_length=[3, 6])
    tree.save(tmp_path / "tree.jsonl")
    return tree, tmp_path / "tree.jsonl"


def test_pixels_are_those_that_were_drawn():
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3), np.uint8)
    assert np.array_equal(pixels_of(png(pixels)), pixels)


def test_a_node_is_drawn_as_its_environment_draws_that_state(saved):
    tree, file = saved
    seen = read_tree(file)
    draw = find_drawing(seen, None)
    env = gym.make("tsr/Sokoban-v0", solution_length=[3, 6], render_mode="rgb_array").unwrapped
    env.reset(seed=1)
    for index in (0, len(tree.nodes) - 1):
        env.set_env_state(tree.nodes[index].snapshot.layers[-1].state)
        drawn = draw(seen.snapshots[index])
        assert np.array_equal(pixels_of(base64.b64decode(drawn.removeprefix(HEAD))), env.render())


def test_the_configuration_of_a_run_has_the_settings_of_its_environment(saved, tmp_path):
    file = saved[1]
    file.write_text(file.read_text().replace('"env": "tsr/Sokoban-v0"', '"env": null'))
    assert find_drawing(read_tree(file), None) is None
    config = TrainConfig(env="sokoban", task=TaskConfig(train_split="none", env_set=("solution_length=[3, 6]",)))
    (tmp_path / "run.toml").write_text(config.to_toml())
    assert find_drawing(read_tree(file), tmp_path)(read_tree(file).snapshots[0]).startswith(HEAD)


def test_without_snapshots_or_a_known_environment_there_is_text_alone(saved, tmp_path):
    tree, file = saved
    small_tree().save(tmp_path / "small.jsonl")
    assert find_drawing(read_tree(tmp_path / "small.jsonl"), None) is None
    tree.save(file, snapshots=False)
    assert find_drawing(read_tree(file), None) is None


def test_a_file_cannot_have_a_module_imported(saved):
    file = saved[1]
    file.write_text(file.read_text().replace("tsr/Sokoban-v0", "this:tsr/Sokoban-v0"))
    assert find_drawing(read_tree(file), None) is None


def test_a_damaged_snapshot_is_not_drawn(saved):
    seen = read_tree(saved[1])
    draw = find_drawing(seen, None)
    snapshot = base64.b64decode(seen.snapshots[0])
    assert draw(base64.b64encode(snapshot[:-9]).decode()) is None
    assert draw("no base64") is None


@pytest.fixture
def compact(tmp_path):
    tree = sokoban_tree(obs_type="compact", solution_length=[3, 6])
    tree.save(tmp_path / "tree.jsonl")
    return tree, tmp_path / "tree.jsonl"


def test_people_read_the_state_of_a_node_and_not_what_was_made_for_the_model(compact):
    tree, file = compact
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


def test_a_page_has_its_buttons_and_the_text_that_the_model_read(tmp_path):
    shelf_tree().save(tmp_path / "shelf.jsonl")
    site = Site([tmp_path / "shelf.jsonl"])
    (name,) = site.sources.trees
    shown = site.data(f"node/1/{name}")
    assert shown["page"] == "Instruction: [SEP] Buy <b>two</b> [SEP] Buy Now [SEP] 2 left"
    assert shown["observation"] == "shelf 2"
    assert shown["buttons"] == ["buy now"]


def test_a_node_with_a_picture_has_no_text_for_people(compact):
    _, file = compact
    site = Site([file])
    (name,) = site.sources.trees
    shown = site.data(f"node/0/{name}")
    assert shown["picture"] is not None
    assert shown["page"] is None


def test_there_is_no_reading_where_the_model_reads_the_same_or_the_environment_is_unknown(compact, tmp_path):
    _, file = compact
    sokoban_tree().save(tmp_path / "plain.jsonl")
    small_tree().save(tmp_path / "small.jsonl")
    assert find_reading(read_tree(tmp_path / "plain.jsonl")) is None
    assert find_reading(read_tree(tmp_path / "small.jsonl")) is None
    # Modules that a file names are not imported.
    file.write_text(file.read_text().replace('"env": "tsr/Sokoban-v0"', '"env": "antigravity:tsr/Sokoban-v0"'))
    assert find_reading(read_tree(file)) is None


def test_a_damaged_snapshot_is_not_read(compact):
    seen = read_tree(compact[1])
    read = find_reading(seen)
    assert read(seen.snapshots[0][:-8] + "AAAAAAA=") is None
