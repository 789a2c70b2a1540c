"""Nodes: a tree is restored with the same tokens, log-probabilities and all other fields except snapshots."""

import json
from dataclasses import replace

import pytest

from tests.agents.bridges.helpers import grown_trees
from tests.agents.bridges.test_labels import small_tree
from tsr_gym import InvalidTree
from tsr_gym.agents.bridges.export import export
from tsr_gym.agents.bridges.rows import read_trees
from tsr_gym.agents.episodes.trajectory import Learned, harvest, keep_learned


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
        assert [back.children(index) for index in range(len(back.nodes))] == [
            tree.children(index) for index in range(len(tree.nodes))
        ]
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
