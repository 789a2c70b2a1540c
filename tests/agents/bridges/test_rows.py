"""Rows and nodes: trees as data, and back."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.agents.bridges.helpers import grown_trees
from tests.agents.bridges.test_export import small_tree
from tests.agents.episodes.test_trajectory import tree_of_four
from tests.agents.learning.test_batch import episode, turn
from tsr_gym import ConfigError, InvalidTree
from tsr_gym.agents.bridges.export import export
from tsr_gym.agents.bridges.rows import drawn_evenly, read_groups, read_trees, rows_of, trained_rows, tree_rows
from tsr_gym.agents.episodes.trajectory import Group, Learned, Trajectory, Turn, harvest, harvest_leaves, keep_learned
from tsr_gym.agents.learning.batch import collate


def test_an_episode_whose_prompts_grow_is_one_row():
    trajectory = episode(turn([1, 2], [3], 0.5, -0.25), turn([1, 2, 3, 9], [4, 5], 1.0, -0.5, -0.75))
    (row,) = rows_of(trajectory, task=8, number=2)
    ids, labels = (1, 2, 3, 9, 4, 5), (-100, -100, 3, -100, 4, 5)
    mask, logprobs = (0, 0, 1, 0, 1, 1), (0, 0, -0.25, 0, -0.5, -0.75)
    assert row[:9] == (8, 2, ids, labels, mask, logprobs, (2, 4), (3, 6), (0, 1))
    assert (row.rewards, row.total_reward) == ((0.5, 1.0), 1.5)


def test_a_prompt_that_begins_anew_begins_a_row_and_turns_without_tokens_have_none():
    trajectory = episode(turn([1], [2], 0.0, -1), turn([1], [], 2.0), turn([7], [8], 1.0, -2))
    first, second = rows_of(trajectory)
    assert (first.input_ids, first.turns, second.input_ids, second.turns) == ((1, 2), (0,), (7, 8), (2,))
    assert (second.rewards, second.total_reward) == ((1.0,), 3.0)


@pytest.mark.parametrize("history", ["full", "markov"])
def test_rows_hold_what_a_learner_learns_from(history):
    (tree,), _, _ = grown_trees(history=history)
    leaves = harvest_leaves(tree)
    batch = collate([Group(0, tuple(leaves))])
    rows = [row for leaf in leaves for row in rows_of(leaf)]
    assert (len(rows), len(rows) == len(leaves)) == (len(batch.ids), history == "full")
    for index, row in enumerate(rows):
        length = int(batch.present[index].sum())
        assert list(row.input_ids) == batch.ids[index, :length].tolist()
        assert [bool(bit) for bit in row.completion_mask] == batch.sampled[index, :length].tolist()
        assert torch.equal(torch.tensor(row.logprobs), batch.old_logprobs[index, :length])


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
@pytest.mark.parametrize("history", ["full", "markov"])
def test_trajectories_come_back_with_equal_tokens_masks_and_logprobs(tmp_path, name, history):
    (tree,), _, _ = grown_trees(history=history)
    tree.save(tmp_path / "tree.jsonl")
    export([tmp_path / "tree.jsonl"], tmp_path / name, kind="trajectories(take='leaves')")
    (group,) = read_groups(tmp_path / name)
    wanted = harvest_leaves(tree)
    assert group.task == tree.seed
    for back, trajectory in zip(group.trajectories, wanted, strict=True):
        for fact in ("total_reward", "success", "finished", "score"):
            assert getattr(back, fact) == getattr(trajectory, fact)
    before, after = collate([Group(tree.seed, tuple(wanted))]), collate([group])
    for part in ("ids", "sampled", "old_logprobs", "rewards", "turn", "node", "parent", "scores", "trajectory"):
        assert torch.equal(getattr(before, part), getattr(after, part)), part


def test_a_library_of_others_reads_the_columns(tmp_path):
    from pyarrow import parquet

    (tree,), _, _ = grown_trees()
    tree.save(tmp_path / "tree.jsonl")
    export([tmp_path / "tree.jsonl"], tmp_path / "rows.parquet", kind="trajectories")
    records = parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    wanted = [json.loads(json.dumps(row._asdict())) for row in tree_rows(tree)]
    assert records == [{"tree": str(tmp_path / "tree.jsonl"), **row} for row in wanted]


def numbers(rows):
    return sorted({row.trajectory for row in rows})


def test_take_selects_trajectories_of_a_tree():
    tree = tree_of_four()
    assert numbers(tree_rows(tree, take="episodes")) == [0, 1, 2]
    assert numbers(tree_rows(tree, take="leaves")) == [0, 1, 2, 3]
    assert numbers(tree_rows(tree, keep=2)) == [0, 1]
    solved = tree_rows(tree, take="episodes", successes=True)
    assert numbers(solved) == [0]
    assert all(row.success for row in solved)
    with pytest.raises(ConfigError, match=r"wanted take of \['chosen', 'episodes', 'leaves'\], got 'some'"):
        tree_rows(tree, take="some")


def test_records_that_are_not_rows_are_refused(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"task": 1, "tree": "a", "trajectory": 0}\n')
    with pytest.raises(InvalidTree, match="not the rows of trajectories"):
        read_groups(tmp_path / "rows.jsonl")


def sampled_turn(prompt, sampled, reward):
    return Turn(tuple(prompt), tuple(sampled), (-0.5,) * len(sampled), reward, True, 1)


GROWING = Trajectory((sampled_turn([1, 2], [3, 4], 0.5), sampled_turn([1, 2, 3, 4, 5], [6], 2.0)), True, 0.0, "naive")
WINDOW = Trajectory((sampled_turn([1], [2], 1.0), sampled_turn([7, 8], [9, 9], 0.25)), False, 0.0, "naive")
SILENT = Trajectory((sampled_turn([1], [], 3.0),), False, 0.0, "naive")


def places(batch):
    """Return as the advantage of each sampled token its place in its row plus a tenth of the number of its row."""
    rows, length = batch.ids.shape
    return (torch.arange(length) + 0.1 * torch.arange(rows)[:, None]) * batch.sampled


def test_rewards_and_advantages_stand_at_their_tokens():
    first, second = trained_rows([Group(4, (GROWING, SILENT, WINDOW)), Group(5, (WINDOW,))], places)
    assert [len(rows) for rows in first] == [1, 2]
    (growing,), (before, after) = first
    assert growing.row.input_ids == (1, 2, 3, 4, 5, 6)
    assert growing.rewards == [0.0, 0.0, 0.0, 0.5, 0.0, 2.0]
    assert growing.advantages == [0.0, 0.0, 2.0, 3.0, 0.0, 5.0]
    assert [before.row.input_ids, after.row.input_ids] == [(1, 2), (7, 8, 9, 9)]
    assert [before.rewards, after.rewards] == [[0.0, 1.0], [0.0, 0.0, 0.0, 0.25]]
    assert torch.allclose(torch.tensor(after.advantages), torch.tensor([0.0, 0.0, 2.2, 3.2]))
    assert [row.row.task for rows in second for row in rows] == [5, 5]


def test_without_an_estimator_there_are_no_advantages_and_a_draw_is_uniform_and_repeats():
    ((rows,),) = trained_rows([Group(4, (GROWING,))], None)
    assert rows[0].advantages is None
    assert trained_rows([Group(4, (SILENT,)), Group(5, ())], places) == [[], []]
    assert drawn_evenly("abc", 3, 7) == ["a", "b", "c"]
    assert drawn_evenly("abc", 5, 7) == ["a", "b", "c"]
    drawn = [drawn_evenly("abcd", 2, seed) for seed in range(400)]
    assert all(letters == sorted(letters) and len({*letters}) == 2 for letters in drawn)
    assert drawn[5] == drawn_evenly("abcd", 2, 5)
    counts = [sum(letter in letters for letters in drawn) for letter in "abcd"]
    assert all(150 < count < 250 for count in counts)


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """Two trees and their files."""
    folder = tmp_path_factory.mktemp("trees")
    grown, _, _ = grown_trees(2)
    files = [folder / f"{number}.jsonl" for number in range(2)]
    keep_learned(grown[0], Learned("grpo", {1: (0.25,) * len(grown[0].nodes[1].candidate.token_ids)}))
    for tree, file in zip(grown, files, strict=True):
        tree.save(file)
    return dict(zip(map(str, files), grown, strict=True))


CHAT = "chat(successes=False, instructions='Walk.')"


@pytest.mark.parametrize(
    ("kind", "old", "new", "message"),
    [
        ("nodes", '"seed": ', '"seed": 9223372036854775808', "record 1: Parquet cannot hold seed=9223372036854775808"),
        (CHAT, '"observation": "', r'"observation": "\ud800', "record 1: Parquet cannot hold messages="),
    ],
    ids=["seed", "half a surrogate pair"],
)
def test_a_value_that_parquet_cannot_hold_is_refused_and_json_lines_hold_it(trees, tmp_path, kind, old, new, message):
    file = tmp_path / "tree.jsonl"
    file.write_text(Path(next(iter(trees))).read_text().replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        export([file], tmp_path / "nodes.parquet", kind=kind)
    export([file], tmp_path / "nodes.jsonl", kind=kind)


@pytest.mark.parametrize("name", ["nodes.jsonl", "nodes.parquet"])
def test_trees_come_back_as_they_were(trees, tmp_path, name):
    out = tmp_path / name
    written = export([*map(type(out), trees)], out, kind="nodes")
    assert written.records == sum(len(tree.nodes) for tree in trees.values())
    restored = read_trees(out)
    assert list(restored) == list(trees)
    for back, tree in zip(restored.values(), trees.values(), strict=True):
        assert [node.candidate for node in back.nodes] == [node.candidate for node in tree.nodes]
        assert any(node.candidate.logprobs for node in back.nodes)
        assert list(back.nodes) == [replace(node, snapshot=None, info=dict(node.info)) for node in tree.nodes]
        assert (back.seed, back.score_of, back.about) == (tree.seed, tree.score_of, json.loads(json.dumps(tree.about)))
        assert (list(back.chosen), list(back.played)) == (list(tree.chosen), list(tree.played))
        assert all(back.children(index) == tree.children(index) for index in range(len(tree.nodes)))
        assert harvest(back, 2) == harvest(tree, 2)


def test_a_parquet_file_is_read_by_datasets_own_reader(trees, tmp_path):
    from pyarrow import parquet, types

    small_tree().save(tmp_path / "small.jsonl")
    export([tmp_path / "small.jsonl"], tmp_path / "nodes.parquet", kind="nodes")
    table = parquet.read_table(tmp_path / "nodes.parquet")
    assert table.column("token_ids").to_pylist() == [[], [1], [2], [3], [4, 4], [5]]
    assert types.is_int64(table.schema.field("prompt_ids").type.value_type)
    assert types.is_float64(table.schema.field("logprobs").type.value_type)
    assert types.is_boolean(table.schema.field("played").type)


def change(**fields):
    return lambda rows: rows[1].update(fields)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda rows: rows[2].pop("token_ids"), "not the nodes of a tree"),
        (lambda rows: rows.pop(1), "node 2 stands where node 1 belongs"),
        (change(parent=7), "wanted a parent among the 1 nodes"),
        (change(logprobs=["a"]), "log-probabilities are not all numbers"),
        (change(info="{"), "not the nodes of a tree"),
        (change(chosen="first"), "not the nodes of a tree"),
    ],
)
def test_damaged_records_are_refused_with_the_tree_that_they_are_of(tmp_path, spoil, message):
    small_tree().save(tmp_path / "small.jsonl")
    out = tmp_path / "nodes.jsonl"
    export([tmp_path / "small.jsonl"], out, kind="nodes")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    spoil(rows)
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InvalidTree, match=rf"nodes\.jsonl, tree .*small\.jsonl.*{message}"):
        read_trees(out)


def test_a_file_that_holds_no_records_is_refused(tmp_path):
    (tmp_path / "nodes.jsonl").write_text("\n")
    with pytest.raises(InvalidTree, match="wanted at least one record, got none"):
        read_trees(tmp_path / "nodes.jsonl")
    (tmp_path / "nodes.jsonl").write_text('{"node": 0}\n[1]\n')
    with pytest.raises(InvalidTree, match=r"nodes\.jsonl:2: wanted a record, got \[1\]"):
        read_trees(tmp_path / "nodes.jsonl")
    (tmp_path / "nodes.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InvalidTree, match="wanted a parquet file"):
        read_trees(tmp_path / "nodes.parquet")
