"""Pictures: what an environment draws of the state of a node, as a PNG."""

import base64
from io import BytesIO

import gymnasium as gym
import numpy as np
import pytest
from matplotlib.image import imread

from tests.agents.reports.view.trees import small_tree, sokoban_tree
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.reports.view.pictures import find_drawing, png
from tsr_gym.agents.reports.view.read_tree import read_tree
from tsr_gym.agents.runs.config import TrainConfig

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


def test_the_configuration_of_a_run_says_how_its_environment_is_made(saved, tmp_path):
    file = saved[1]
    file.write_text(file.read_text().replace('"env": "tsr/Sokoban-v0"', '"env": null'))
    assert find_drawing(read_tree(file), None) is None
    config = TrainConfig(env="sokoban", task=TaskConfig(train_split="none", env_set=("solution_length=[3, 6]",)))
    (tmp_path / "config.json").write_text(config.to_json())
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
