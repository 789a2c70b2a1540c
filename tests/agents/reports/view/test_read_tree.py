"""Reading a tree for the viewer: as far as its file is whole, and never as a whole one when it is not."""

import json

import pytest

from tests.agents.reports.view.trees import small_tree, sokoban_tree
from tsr_gym.agents.reports.view.read_tree import read_tree
from tsr_gym.errors import InvalidTree


@pytest.fixture
def file(tmp_path):
    small_tree().save(tmp_path / "tree.jsonl")
    return tmp_path / "tree.jsonl"


def test_a_whole_file_is_read_as_the_tree_that_was_saved(file):
    seen = read_tree(file)
    assert list(seen.tree.nodes) == list(small_tree().nodes)
    assert (list(seen.tree.chosen), seen.note) == ([3], "")


def test_snapshots_are_left_as_they_lie_in_the_file(tmp_path):
    tree = sokoban_tree()
    tree.save(tmp_path / "tree.jsonl")
    seen = read_tree(tmp_path / "tree.jsonl")
    assert all(node.snapshot is None for node in seen.tree.nodes)
    lines = (tmp_path / "tree.jsonl").read_text().splitlines()[1:]
    assert list(seen.snapshots) == [json.loads(line)["snapshot"] for line in lines]


def test_a_file_that_was_cut_short_is_shown_up_to_there(file):
    data = file.read_bytes()
    file.write_bytes(data[: data.index(b'"up"') - 3])
    seen = read_tree(file)
    assert len(seen.tree.nodes) == 3
    assert seen.note == "line 5 is not whole: 3 nodes shown of 6"
    # What the search chose lies in the part that is missing.
    assert list(seen.tree.chosen) == []


def test_lines_that_are_missing_at_the_end_are_told(file):
    file.write_bytes(b"\n".join(file.read_bytes().splitlines()[:3]))
    assert read_tree(file).note == "the file is cut short: 2 nodes shown of 6"


@pytest.mark.parametrize("line", [b"[]", b'{"parent": 9}', b"\xff", b"[" * 100_000])
def test_a_damaged_line_ends_what_is_shown(file, line):
    lines = file.read_bytes().splitlines()
    lines[4] = line
    file.write_bytes(b"\n".join(lines))
    assert len(read_tree(file).tree.nodes) == 3


@pytest.mark.parametrize("data", [b"", b"{}", b'{"format": "tsr-gym tree", "version": 99}', b"\x89PNG\n"])
def test_what_is_no_tree_is_refused(file, data):
    file.write_bytes(data)
    with pytest.raises(InvalidTree, match="wanted a 'tsr-gym tree'"):
        read_tree(file)


def test_a_header_alone_is_refused(file):
    file.write_bytes(file.read_bytes().splitlines()[0])
    with pytest.raises(InvalidTree, match="at least its first node"):
        read_tree(file)
