"""Trees described for the viewer: columns, single nodes, and the views of snapshots."""

import base64
import json
from io import BytesIO

import gymnasium as gym
import numpy as np
import pytest
from matplotlib.image import imread

from tests.agents.reports.view.trees import EVIL, evil_tree, node, shelf_tree, small_tree, sokoban_tree
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.reports.view.describe_tree import (
    describe_node,
    describe_tree,
    fates,
    find_drawing,
    find_reading,
    gains,
    outcome_of,
    png,
    ranks,
    reason,
    summarise_tree,
    values,
)
from tsr_gym.agents.reports.view.read_files import SeenTree, read_tree
from tsr_gym.agents.reports.view.site import Site
from tsr_gym.errors import InvalidTree
from tsr_gym.tree import Candidate, Tree

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


def test_what_cannot_be_drawn_has_text_alone_and_no_module_is_imported(saved, tmp_path):
    tree, file = saved
    seen = read_tree(file)
    draw = find_drawing(seen, None)
    assert draw(base64.b64encode(base64.b64decode(seen.snapshots[0])[:-9]).decode()) is None
    assert draw("no base64") is None
    file.write_text(file.read_text().replace("tsr/Sokoban-v0", "this:tsr/Sokoban-v0"))
    assert find_drawing(read_tree(file), None) is None
    tree.save(file, snapshots=False)
    assert find_drawing(read_tree(file), None) is None
    small_tree().save(tmp_path / "small.jsonl")
    assert find_drawing(read_tree(tmp_path / "small.jsonl"), None) is None


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


def test_a_page_has_its_buttons_and_the_text_that_the_model_read_and_a_picture_none(compact, tmp_path):
    shelf_tree().save(tmp_path / "shelf.jsonl")
    site = Site([tmp_path / "shelf.jsonl"])
    (name,) = site.sources.trees
    shown = site.data(f"node/1/{name}")
    assert shown["page"] == "Instruction: [SEP] Buy <b>two</b> [SEP] Buy Now [SEP] 2 left"
    assert (shown["observation"], shown["buttons"]) == ("shelf 2", ["buy now"])
    site = Site([compact[1]])
    shown = site.data(f"node/0/{next(iter(site.sources.trees))}")
    assert (shown["picture"] is None, shown["page"]) == (False, None)


def test_there_is_no_reading_where_the_model_reads_the_same_or_the_state_is_unknown(compact, tmp_path):
    _, file = compact
    seen = read_tree(file)
    assert find_reading(seen)(seen.snapshots[0][:-8] + "AAAAAAA=") is None
    sokoban_tree().save(tmp_path / "plain.jsonl")
    small_tree().save(tmp_path / "small.jsonl")
    assert find_reading(read_tree(tmp_path / "plain.jsonl")) is None
    assert find_reading(read_tree(tmp_path / "small.jsonl")) is None
    # Modules that a file names are not imported.
    file.write_text(file.read_text().replace('"env": "tsr/Sokoban-v0"', '"env": "antigravity:tsr/Sokoban-v0"'))
    assert find_reading(read_tree(file)) is None


def why(tree, index):
    return reason(tree, index, fates(tree)[index], ranks(tree))


def test_every_node_is_kept_continued_ended_or_pruned_with_a_reason_of_facts():
    assert fates(small_tree()) == ["kept", "kept", "expanded", "kept", "ended", "pruned"]
    tree = small_tree()
    assert why(tree, 3) == "on the path that the search chose (1 of 1); merit 3, rank 1 of 3 at its depth"
    assert why(tree, 5) == "not continued: merit 1.2, rank 3 of 3 at its depth; the search continued from 0 there"
    assert why(tree, 2).startswith("the search continued from here and chose no path through it; merit 1, rank 2 of 2")


def test_equals_share_a_rank_and_a_twin_and_a_dead_end_are_named():
    tree = Tree()
    tree.add(node(None, 0))
    for text in ("a", "b"):
        tree.add(node(0, 1, text, score=1.0, state_key=b"same"))
    tree.add(node(0, 1, "c", info={"dead_end": "a box in a corner"}))
    assert why(tree, 2) == (
        "not continued: merit 1, rank 1 (shared) of 3 at its depth; the search continued from 0 there; "
        "the same state as node 1"
    )
    assert why(tree, 3) == "a dead end: a box in a corner"
    # A played episode differs from imagined ones.
    tree = Tree()
    for parent, text, played in ((None, "", True), (0, "imagined", False), (0, "played", True)):
        tree.add(node(parent, 0 if parent is None else 1, text), played=played)
    assert fates(tree) == ["played", "pruned", "played"]


@pytest.mark.parametrize(
    ("end", "info", "outcome"),
    [("solved", {}, "solved"), ("failed", {}, "failed"), ("cut", {}, "cut"), ("", {"dead_end": "x"}, "dead end")],
)
def test_ends_have_different_outcomes(end, info, outcome):
    assert outcome_of(node(0, 1, end=end, info=info)) == outcome


def test_values_are_means_over_children_and_gains_are_reward_and_change_of_value():
    # V(3) = V(4) = 0, V(1) = (1 + 0) / 2; no episode below 2 has ended, so V(0) only comes from node 1.
    assert values(small_tree()) == [0.5, 0.5, None, 0.0, 0.0, None]
    tree = small_tree()
    assert gains(tree, values(tree)) == [None, 0.0, None, 0.5, -0.5, None]


def seen(tree):
    return SeenTree(tree, (None,) * len(tree.nodes), "")


def test_columns_have_the_numbers_of_the_tree():
    shape = describe_tree(seen(small_tree()))
    assert shape["parent"] == [None, 0, 0, 1, 1, 2]
    assert shape["label"] == ["start", "left", "right", "up", "down", "up"]
    assert shape["merit"] == [0.0, 2.0, 1.0, 3.0, 2.0, 1.2]
    assert shape["return"] == [0.0, 0.0, 0.5, 1.0, 0.0, 0.5]
    assert shape["value"] == [0.5, 0.5, None, 0.0, 0.0, None]
    assert shape["outcome"] == ["open", "open", "open", "solved", "failed", "open"]
    assert shape["chosen"] == [3]
    # JavaScript has no 64-bit integers.
    assert shape["seed"] == "7"


def test_a_label_has_the_executed_actions():
    tree = Tree()
    tree.add(node(None, 0))
    tree.add(node(0, 1, "<answer>Up||Left</answer>", info={"executed": ("Up", "Left")}))
    tree.add(node(0, 1, "nothing\n that helps " + "x" * 99))
    labels = describe_tree(seen(tree))["label"]
    assert labels[1] == "Up || Left"
    assert (labels[2][:20], len(labels[2]), labels[2][-1]) == ("nothing that helps x", 64, "…")


def test_a_node_shows_its_tokens_and_the_prompt_that_the_model_saw():
    tree = Tree()
    tree.add(node(None, 0))
    tree.add(node(0, 1, Candidate("ab", (9,), (1, 2), (-0.5, -2.0)), info={"golden_answers": ("Rome",)}))
    spelled = describe_node(seen(tree), 1, spell=lambda ids: [f"<{token}>" for token in ids], picture=None)
    assert (spelled["tokens"], spelled["logprobs"], spelled["prompt"]) == (["<1>", "<2>"], [-0.5, -2.0], "<9>")
    assert spelled["answers"] == ["Rome"]
    unspelled = describe_node(seen(tree), 1, spell=None, picture=None)
    assert (unspelled["tokens"], unspelled["prompt"], unspelled["num_prompt"]) == (["⟨1⟩", "⟨2⟩"], None, 1)


def test_actions_observations_and_facts_of_any_kind_become_text():
    tree = Tree()
    tree.add(node(None, 0, shown=[1, 2]))
    tree.add(node(0, 1, 3, info={"deep": {"a": (1, None)}, "odd": float("nan")}))
    assert describe_node(seen(tree), 0, spell=None, picture=None)["observation"] == "[1, 2]"
    shown = describe_node(seen(tree), 1, spell=None, picture=None)
    assert (shown["answer"], shown["info"]["deep"]) == ("3", '{"a": [1, null]}')
    json.dumps(describe_tree(seen(tree)), allow_nan=False)


def test_hostile_texts_stay_texts_and_a_node_that_is_not_there_is_refused():
    tree = evil_tree()
    assert json.loads(json.dumps(describe_tree(seen(tree)), allow_nan=False))["about"][EVIL] == EVIL
    for index in range(len(tree.nodes)):
        shown = describe_node(seen(tree), index, spell=None, picture=None)
        assert shown["observation"] == tree.nodes[index].observation
    assert describe_node(seen(tree), 2, spell=None, picture=None)["why"] == f"a dead end: {EVIL}"
    with pytest.raises(IndexError, match="wanted a node from 0 to 5, got 6"):
        describe_node(seen(small_tree()), 6, spell=None, picture=None)


def test_a_summary_counts_ends_and_the_best_return(tmp_path):
    small_tree().save(tmp_path / "tree")
    ends = {"solved": 1, "failed": 1, "cut": 0}
    whole = {"nodes": 6, "outcome": "solved", "ends": ends, "best": 1.0, "whole": True}
    assert summarise_tree(tmp_path / "tree") == whole
    # Of half a file, its whole lines.
    data = (tmp_path / "tree").read_bytes()
    (tmp_path / "tree").write_bytes(data[: data.index(b'"down"')])
    summary = summarise_tree(tmp_path / "tree")
    assert (summary["nodes"], summary["outcome"], summary["whole"]) == (4, "solved", False)
    (tmp_path / "tree").write_bytes(b"")
    with pytest.raises(InvalidTree):
        summarise_tree(tmp_path / "tree")
