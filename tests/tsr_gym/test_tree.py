"""Tree: nodes by index, views, totals, ranks and files; and its budget. The trees are drawn here by hand."""

import copy
import json
import math
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from functools import partial
from math import inf, nan

import numpy as np
import pytest

from tests.tsr_gym.testing.worlds import Walk
from tsr_gym import Budget, Candidate, ConfigError, InvalidTree, Node, NotFinite, Tree, restore
from tsr_gym.files import GZIP
from tsr_gym.seeds import derive_seed

ROWS = [
    (None, 0.0, 0.0, False, False), (0, 1.0, 0.5, False, False), (0, 2.0, 0.25, False, False),
    (0, -1.0, 4.0, False, False), (1, 0.5, 1.0, False, False), (1, 3.0, 0.0, False, False),
    (3, 10.0, 1.0, True, False), (6, 0.0, 2.0, False, True),
]  # fmt: skip


def node(tree, parent, reward=0.0, score=0.0, terminated=False, truncated=False, **more):
    depth = 0 if parent is None else tree.nodes[parent].depth + 1
    facts = {"candidate": Candidate(f"to {len(tree.nodes)}"), "observation": "seen", "info": {}, "snapshot": None}
    return Node(
        parent, depth, **{**facts, **more}, reward=reward, score=score, terminated=terminated, truncated=truncated
    )


def grown(**arguments):
    tree = Tree(**arguments)
    for row in ROWS:
        tree.add(node(tree, *row), played=row in (ROWS[0], ROWS[2]))
    return tree


def test_nodes_are_numbered_as_they_come_and_children_keep_their_order():
    tree = grown()
    assert [tree.children(index) for index in range(8)] == [(1, 2, 3), (4, 5), (), (6,), (), (), (7,), ()]
    assert [item.depth for item in tree.nodes] == [0, 1, 1, 1, 2, 2, 2, 3]
    assert list(tree.played) == [0, 2]
    assert tree.ROOT == tree.root == 0
    assert [tree.branch(index) for index in range(8)] == [(), (0,), (1,), (2,), (0, 0), (0, 1), (2, 0), (2, 0, 0)]
    assert tree.at(3).branch(7) == (2, 0, 0)
    assert (tree.path(7), tree.at(3).path(7), tree.at(7).path(7)) == ([0, 3, 6, 7], [3, 6, 7], [7])
    with pytest.raises(ValueError, match="node 5 is not below the root 3"):
        tree.at(3).path(5)


@pytest.mark.parametrize("parent", [None, 1, 7, -1])
def test_a_node_needs_a_parent_in_the_tree(parent):
    tree = Tree()
    with pytest.raises(ValueError, match="among the 0 nodes"):
        tree.add(Node(0, 0, Candidate("x"), "", 0.0, 0.0, False, False, {}, None))
    tree.add(node(tree, None))
    with pytest.raises(ValueError, match="wanted a parent among the 1 nodes"):
        tree.add(Node(parent, 1, Candidate("x"), "", 0.0, 0.0, False, False, {}, None))
    with pytest.raises(IndexError):
        tree.at(8)


def test_nodes_below_come_parents_first_and_leaves_are_open_while_the_episode_runs():
    tree = grown()
    assert list(tree.below()) == [0, 1, 4, 5, 2, 3, 6, 7]
    assert (list(tree.below(3)), list(tree.at(1).below())) == ([3, 6, 7], [1, 4, 5])
    assert (tree.leaves(), tree.open_leaves()) == ([4, 5, 2, 7], [4, 5, 2])
    assert tree.at(3).open_leaves() == []
    assert [index for index in range(8) if tree.nodes[index].done] == [6, 7]


def test_totals_and_merit_are_of_the_turns_below_the_root_of_the_view():
    tree = grown()
    assert [tree.total(index, "reward") for index in range(8)] == [0.0, 1.0, 2.0, -1.0, 1.5, 4.0, 9.0, 9.0]
    assert [tree.total(index, "score") for index in range(8)] == [0.0, 0.5, 0.25, 4.0, 1.5, 0.5, 5.0, 7.0]
    assert (tree.at(3).total(7, "reward"), tree.at(3).total(3, "reward")) == (10.0, 0.0)
    assert [grown().merit(index) for index in (4, 5, 2, 7)] == [1.5, 0.5, 0.25, 7.0]
    assert [grown(score_of="state").merit(index) for index in (4, 5, 2, 7)] == [1.0, 0.0, 0.25, 2.0]
    with pytest.raises(ValueError, match="node 5 is not below the root 3"):
        grown().at(3).total(5, "reward")


def test_the_best_nodes_come_first():
    tree = grown()
    assert tree.best([4, 5, 2, 7], 2) == [7, 4]
    assert tree.best([4, 5, 2, 7], 9) == [7, 4, 5, 2]
    assert tree.best([4, 5, 2, 7], 3, "reward") == [7, 5, 2]
    assert grown(score_of="state").best([4, 5, 2, 7], 4) == [7, 4, 2, 5]
    assert tree.best([], 3) == []
    for num in (-1, 1.5, math.nan):
        with pytest.raises(ConfigError, match="wanted num as a whole number >= 0"):
            tree.best([1, 2, 3], num)


def star(seed, scores):
    tree = Tree(seed=seed)
    tree.add(node(tree, None))
    for score in scores:
        tree.add(node(tree, 0, score=score))
    return tree


def test_ties_are_broken_by_the_seed_and_the_address_alone():
    firsts = [star(seed, [1.0] * 4).best([1, 2, 3, 4], 1)[0] for seed in range(400)]
    # Each of four equal children comes first in about a quarter of the trees: four standard deviations of 400 draws.
    assert all(65 <= firsts.count(child) <= 135 for child in (1, 2, 3, 4))
    tree = star(7, [1.0] * 4)
    assert tree.best([4, 3, 2, 1], 4) == tree.best([1, 2, 3, 4], 4)
    # The same addresses under other indices: three nodes are added in between.
    other = Tree(seed=7)
    other.add(node(other, None))
    other.add(node(other, 0, score=1.0))
    for _ in range(3):
        other.add(node(other, 1))
    for _ in range(3):
        other.add(node(other, 0, score=1.0))
    moved = dict(zip([1, 2, 3, 4], [1, 5, 6, 7], strict=True))
    assert other.best([1, 5, 6, 7], 4) == [moved[index] for index in tree.best([1, 2, 3, 4], 4)]


def test_what_breaks_ties_derives_from_seed_and_address_also_for_rounding():
    tree = grown(seed=11)
    addresses = [(), (0,), (1,), (2,), (0, 0), (0, 1), (2, 0), (2, 0, 0)]
    wanted = [derive_seed(11, "tie", *address) for address in addresses]
    assert [tree.tie(index) for index in range(8)] == wanted
    assert [tree.at(1).tie(index) for index in reversed(range(8))] == wanted[::-1]
    order = {tuple(star(seed, [0.1 + 0.2, 0.3]).best([1, 2], 2)) for seed in range(30)}
    assert order == {(1, 2), (2, 1)}
    assert all(star(seed, [0.3 + 1e-6, 0.3]).best([1, 2], 1) == [1] for seed in range(30))


def test_views_share_nodes_and_budget_with_the_tree():
    tree = grown()
    view = tree.at(2)
    new = view.add(node(view, 2))
    view.charge(Budget(env_steps=3))
    tree.charge(Budget(env_steps=4, restores=1))
    assert tree.children(2) == (new,)
    assert view.spent == tree.spent == Budget(env_steps=7, restores=1)
    assert tree.root == 0
    assert (view.seed, view.score_of, view.about) == (tree.seed, tree.score_of, tree.about)
    tree.spend(env_steps=3, seconds=0.5)
    tree.at(2).spend(env_steps=4)
    assert (tree.spent, tree.spent.seconds) == (Budget(env_steps=14, restores=1), 0.5)
    with pytest.raises(KeyError, match="steps"):
        tree.spend(steps=1)


def test_a_rater_changes_the_score_of_a_leaf_and_nothing_else():
    tree = grown()
    before = tree.nodes[5]
    tree.rate(5, 7.5)
    assert (tree.nodes[5].score, tree.nodes[5].reward, tree.nodes[5].candidate) == (7.5, 3.0, before.candidate)
    assert [tree.total(index, "score") for index in (1, 4, 5)] == [0.5, 1.5, 8.0]
    assert tree.merit(5) == 8.0
    assert tree.total(tree.add(node(tree, 5, score=1.0)), "score") == 9.0
    for index in (0, 1):
        with pytest.raises(ValueError, match="wanted a leaf to rate"):
            tree.rate(index, 1.0)


def test_a_node_is_open_solved_or_lost_and_never_changes():
    tree = grown()
    assert [index for index in range(8) if not tree.nodes[index].is_open] == [6, 7]
    lost = tree.add(node(tree, 2, info={"dead_end": "a box in a corner"}))
    assert not tree.nodes[lost].is_open
    assert not tree.nodes[lost].done
    tree = grown()
    good, bad = {"success": True}, {"success": False}
    ends = [tree.add(node(tree, 2, terminated=True, info=info)) for info in (good, bad, {})]
    # An environment may report success before the end; the node is not solved yet.
    ends += [tree.add(node(tree, 2, info=good)), tree.add(node(tree, 2, truncated=True, info=good))]
    assert [tree.nodes[end].solved for end in ends] == [True, False, False, False, False]
    with pytest.raises(AttributeError):
        grown().nodes[1].reward = 5.0


def test_states_are_distinguished_by_their_key_and_the_turns_left():
    tree = Tree()
    tree.add(node(tree, None, state_key=b"a", info={"turns_left": 3, "actions_left": 5}))
    for parent, key, left in ((0, b"b", (2, 4)), (0, b"b", (2, 3)), (0, None, (2, 4)), (1, b"a", (3, 5))):
        info = {"turns_left": left[0], "actions_left": left[1]}
        tree.add(node(tree, parent, state_key=key, info=info))
    # Without limits, the depth is used for the turns.
    tree.add(node(tree, 4, state_key=b"b"))
    rooms = {0: [0, 4], 1: [1, 2, 5], 2: [1, 2, 5], 3: [3], 4: [0, 4], 5: [1, 2, 5]}
    assert {index: tree.twins(index, turns=False) for index in range(6)} == rooms
    assert [tree.twins(index, turns=True) for index in range(6)] == [[0, 4], [1], [2], [3], [0, 4], [5]]
    assert (tree.key(3, turns=False), tree.key(3, turns=True)) == (None, None)
    assert tree.num_transpositions == 3


def walked():
    env = Walk()
    observation, info = env.reset(seed=3)
    tree = Tree(seed=9, score_of="state", about={"env": "walk", "rules": {"p": 0.5}, "clairvoyant": False})
    tree.add(Node(None, 0, Candidate(""), observation, 0.0, 0.0, False, False, info, env.snapshot()), played=True)
    for number in range(3):
        observation, reward, terminated, truncated, info = env.step("Jump || Left \ud800")
        candidate = Candidate("Jump \ud800", (1, 2, 3), (4, number), (-0.1, -1e-17))
        seen = candidate, (observation, ("stacked", number)), reward, 0.1 + 0.2
        after = terminated, truncated, info, env.snapshot(), b"key\x00"
        tree.add(Node(number, number + 1, *seen, *after), played=number < 2)
    tree.charge(Budget(model_calls=2, seconds=0.25, sampled_tokens=6))
    return tree


def test_a_node_comes_back_from_copies_and_other_processes_with_every_part():
    answer = Candidate("up", (1,), (2, 3), (-0.5, -1.0), 4)
    parts = [1, 2, answer, {"seen": [5]}, -0.1, 0.3, True, False, {"x": 1}, None, b"k"]
    node = Node(*parts)
    for other in (pickle.loads(pickle.dumps(node)), copy.deepcopy(node)):
        assert [getattr(other, field.name) for field in fields(Node)] == parts
        assert other.info is not node.info


def test_a_tree_comes_back_from_its_file_whole(tmp_path):
    tree = walked()
    tree.at(3).choose([2, 1])
    tree.save(tmp_path / "tree.jsonl")
    again = Tree.load(tmp_path / "tree.jsonl")
    assert list(again.nodes) == list(tree.nodes)
    assert [again.children(index) for index in range(4)] == [(1,), (2,), (3,), ()]
    assert (list(again.played), list(tree.chosen), list(again.chosen)) == ([0, 1, 2], [2, 1], [2, 1])
    assert (again.seed, again.score_of, again.about) == (tree.seed, tree.score_of, tree.about)
    assert (again.spent, again.spent.seconds) == (tree.spent, 0.25)
    env = Walk()
    restore(env, again.nodes[2].snapshot)
    assert env.snapshot() == tree.nodes[2].snapshot
    with pytest.raises(IndexError, match="wanted a node from 0 to 3, got 4"):
        tree.choose([4])


@pytest.mark.parametrize(("version", "fields"), [(None, 4), (7, 5)])
def test_the_version_of_the_weights_is_kept_where_somebody_counts(tmp_path, version, fields):
    tree = Tree()
    answer = Candidate("x", (1,), (2,), (-0.5,), version)
    tree.add(Node(None, 0, answer, "", 0.0, 0.0, False, False, {}, None))
    tree.save(tmp_path / "tree.jsonl")
    assert Tree.load(tmp_path / "tree.jsonl").nodes[0].candidate == answer
    # Without a weight version, a candidate has four fields.
    assert len(json.loads((tmp_path / "tree.jsonl").read_text().splitlines()[1])["candidate"]) == fields


def test_saving_replaces_an_older_file_unless_it_fails(tmp_path):
    walked().save(tmp_path / "tree.jsonl", snapshots=False)
    assert all(item.snapshot is None for item in Tree.load(tmp_path / "tree.jsonl").nodes)
    path = tmp_path / "tree.jsonl"
    path.write_text("older")
    walked().save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["tree.jsonl"]
    assert len(Tree.load(path).nodes) == 4
    path.write_text("older")
    tree = walked()
    tree.add(node(tree, 3, info={"odd": object()}))
    with pytest.raises(TypeError, match="a object in a node's observation or info has no JSON form"):
        tree.save(path)
    assert path.read_text() == "older"


def damaged(lines, number, change):
    rows = [json.loads(line) for line in lines]
    change(rows[number])
    return [json.dumps(row) for row in rows]


def with_node(lines, **parts):
    return damaged(lines, 2, lambda row: row.update(parts))


def with_header(lines, **parts):
    return damaged(lines, 0, lambda row: row.update(parts))


def deep(line, depth):
    head, tail = json.dumps(json.loads(line) | {"observation": 0}).split('"observation": 0')
    return f'{head}"observation": {"[" * depth}{"]" * depth}{tail}'


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 10**400])
@pytest.mark.parametrize("name", ["reward", "score"])
def test_numbers_that_cannot_be_compared_are_refused_with_their_node(name, wrong):
    tree = grown()
    with pytest.raises(NotFinite, match=f"wanted a finite {name} below node 4, got"):
        tree.add(node(tree, 4, **{name: wrong}))
    with pytest.raises(NotFinite, match="wanted a finite score below node 6"):
        tree.rate(7, wrong)
    assert len(tree.nodes) == len(ROWS)
    far = tree.add(node(tree, 4, score=1e308))
    with pytest.raises(NotFinite, match=r"got 1e\+308, after 1e\+308"):
        tree.add(node(tree, far, score=1e308))


@pytest.mark.parametrize(
    ("candidate", "error"),
    [
        (Candidate("x", (1,), (2, 3), (-0.5,)), "each of the 2 tokens of node 8, or none, got 1"),
        (Candidate("x", (1,), (2,), (-0.5, -0.5)), "each of the 1 tokens of node 8, or none, got 2"),
        (Candidate("x", (1,), (2,), (math.nan,)), "wanted log-probabilities for the answer of node 8"),
    ],
)
def test_every_token_has_a_log_probability_or_none_has(candidate, error):
    tree = grown()
    with pytest.raises(ValueError, match=error):
        tree.add(node(tree, 4, candidate=candidate))
    for right in (Candidate("x", (1,), (2, 3)), Candidate("x", logprobs=(-0.5,))):
        tree.add(node(tree, 4, candidate=right))


def test_files_hold_only_numbers_that_json_has(tmp_path):
    tree, path = walked(), tmp_path / "tree.jsonl"
    candidate = Candidate("never", (1,), (2,), (-math.inf,))
    tree.add(node(tree, 3, candidate=candidate, info={"far": math.inf, "gaps": np.array([math.nan, 1.0])}))
    tree.save(path)
    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    last = Tree.load(path).nodes[-1]
    assert last.candidate == candidate
    assert last.info == {"far": None, "gaps": (None, 1.0)}


DAMAGE = {
    "not JSON": (lambda lines: [*lines[:2], "{", *lines[3:]], "line 3"),
    "an unknown field": (lambda lines: damaged(lines, 2, lambda row: row.update(extra=1)), "line 3"),
    "a missing field": (lambda lines: damaged(lines, 3, lambda row: row.pop("reward")), "line 4"),
    "a damaged snapshot": (lambda lines: damaged(lines, 1, lambda row: row.update(snapshot="AAAA")), "line 2"),
    "a snapshot that is not base64": (lambda lines: damaged(lines, 1, lambda row: row.update(snapshot="%")), "line 2"),
    "a parent that is not there": (lambda lines: damaged(lines, 2, lambda row: row.update(parent=7)), "line 3"),
    "a second first node": (lambda lines: damaged(lines, 2, lambda row: row.update(parent=None)), "line 3"),
    "a candidate too short": (lambda lines: damaged(lines, 2, lambda row: row.update(candidate=["x"])), "line 3"),
    "a line that is no object": (lambda lines: [*lines[:2], "[1]", *lines[3:]], "line 3"),
    "cut short": (lambda lines: lines[:-1], "wanted 4 nodes, got 3"),
    "a header without a seed": (lambda lines: damaged(lines, 0, lambda row: row.pop("seed")), "line 1"),
    "another format": (lambda lines: with_header(lines, format="other"), "wanted a 'tsr-gym tree'"),
    "another version": (lambda lines: with_header(lines, version=2), r"got \('tsr-gym tree', 2\)"),
    "an unknown count": (lambda lines: damaged(lines, 0, lambda row: row["spent"].update(coffee=1)), "tree.jsonl"),
    "a header that is no object": (lambda lines: ["7", *lines[1:]], "line 1"),
    "bytes that are no text": (lambda lines: ["\udcff\udcfe\x00\x01"], r"tree\.jsonl"),
    "nothing": (lambda lines: [], "wanted a 'tsr-gym tree'"),
    "brackets without an end": (lambda lines: [*lines[:2], "[" * 100_000, *lines[3:]], "line 3"),
    "a header of brackets": (lambda lines: ["[" * 100_000, *lines[1:]], "line 1"),
    "an observation nested too deep": (lambda lines: [*lines[:2], deep(lines[2], 700), *lines[3:]], "line 3"),
    "a depth that is not its parent's and one": (lambda lines: with_node(lines, depth=3), "line 3"),
    "a seed in words": (lambda lines: with_header(lines, seed="one"), "line 1"),
    "a seed below 0": (lambda lines: with_header(lines, seed=-1), "line 1"),
    "a seed that is no number": (lambda lines: with_header(lines, seed=True), "line 1"),
    "scores of something else": (lambda lines: with_header(lines, score_of="path"), "line 1"),
    "facts that are none": (lambda lines: with_header(lines, about=[]), "line 1"),
    "a path that is none": (lambda lines: with_header(lines, played="0"), "line 1"),
    "a path through nodes that are not there": (lambda lines: with_header(lines, played=[0, 9]), "line 1"),
    "a path of words": (lambda lines: with_header(lines, chosen=["0"]), "line 1"),
    "counts in words": (lambda lines: damaged(lines, 0, lambda row: row["spent"].update(env_steps="3")), "line 1"),
    "no counts": (lambda lines: with_header(lines, spent=None), "line 1"),
    **{
        f"{name} = {value!r}": (partial(with_node, **{name: value}), "line 3")
        for name, value in (
            *(("parent", value) for value in ("0", True, 0.0, -1)),
            *(("depth", value) for value in ("1", True, 1.0, None)),
            *((name, value) for name in ("reward", "score") for value in ("1", None, True, [1], 10**400, nan, inf)),
            *(("candidate", ["x", [], [1, 2], logprobs]) for logprobs in ([-0.5], [-0.5, nan], [-1, -1, -1])),
            *((name, value) for name in ("terminated", "truncated") for value in ("no", 0, None)),
            *(("info", value) for value in ([], None, "x")),
            *(("snapshot", value) for value in (7, ["AAAA"], "")),
            *(("state_key", value) for value in (7, "xy", [])),
            *(
                ("candidate", ["x", *rest])
                for rest in (("ab", [], []), ([], ["1"], []), ([], [1], ["-1"]), ([], [1], [nan]))
            ),
            *(("candidate", value) for value in ("abcd", None, ["x", [True], [], []])),
        )
    },
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_refused_and_the_line_named(name, tmp_path):
    damage, message = DAMAGE[name]
    path = tmp_path / "tree.jsonl"
    with pytest.raises(FileNotFoundError):
        Tree.load(path)
    walked().save(path)
    path.write_text("".join(f"{line}\n" for line in damage(path.read_text().splitlines())), "utf-8", "surrogateescape")
    with pytest.raises(InvalidTree, match=message) as caught:
        Tree.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("name", "magic"), [("tree.jsonl.gz", GZIP), ("tree.jsonl", b'{"')])
def test_a_tree_is_compressed_by_its_name_and_read_by_its_bytes(name, magic, tmp_path):
    tree = walked()
    tree.save(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    assert data.startswith(magic)
    (tmp_path / "any name").write_bytes(data)
    tree.save(tmp_path / name)
    assert (tmp_path / name).read_bytes() == data
    for path in (tmp_path / name, tmp_path / "any name"):
        again = Tree.load(path)
        assert (again.nodes, again.chosen, again.spent) == (tree.nodes, tree.chosen, tree.spent)


def test_siblings_with_equal_snapshots_share_them_after_a_load(tmp_path):
    tree = walked()
    tree.add(replace(tree.nodes[1]))
    tree.save(tmp_path / "tree.jsonl.gz")
    nodes = Tree.load(tmp_path / "tree.jsonl.gz").nodes
    assert nodes[-1].snapshot is nodes[1].snapshot is not nodes[2].snapshot


@pytest.mark.parametrize(
    "damage",
    [
        *(lambda data, cut=cut: data[:cut] for cut in (3, 12, 200, -9, -1)),
        *(lambda data, at=at: data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :] for at in (0, 2, 15, 300, -6, -1)),
        lambda data: data + b"more",
        lambda data: data + data,
    ],
)
def test_a_damaged_compressed_tree_is_refused(damage, tmp_path):
    path = tmp_path / "tree.jsonl.gz"
    walked().save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InvalidTree, match=r"tree\.jsonl\.gz"):
        Tree.load(path)


def test_a_tree_prints_itself_as_an_indented_outline():
    tree = grown()
    assert repr(tree) == f"Tree(8 nodes, seed 0)\n{tree.outline()}"
    lines = tree.outline().splitlines()
    # The children of a node follow it, two blanks further in, in their order.
    assert [line.partition(":")[0] for line in lines] == [
        "0", "  1", *("    4", "    5"), "  2", "  3", "    6", "      7",
    ]  # fmt: skip
    assert lines[2].endswith("reward 0.5, score 1")
    assert lines[6].endswith("reward 10, score 1, ended")
    assert lines[7].endswith("reward 0, score 2, cut by a limit")
    assert [line.partition(":")[0] for line in tree.at(3).outline().splitlines()] == ["3", "  6", "    7"]
    assert tree.outline(limit=2).splitlines()[1:] == [lines[1], "... cut after 2 nodes"]
    assert Tree().outline() == "no nodes"


def test_in_an_outline_a_text_takes_one_short_line():
    tree = Tree(seed=5)
    tree.add(Node(None, 0, Candidate(""), "#P\n G" + 100 * "x", 0.0, 0.0, False, False, {}, None))
    tree.add(Node(0, 1, Candidate("Up ||\nUp"), "over", 1.0, 1.0, True, False, {"success": True}, None))
    first, second = tree.outline().splitlines()
    assert first == "0: #P G" + 53 * "x" + "..."
    assert second == "  1: Up || Up, reward 1, solved"


NAMES = [item.name for item in fields(Budget)]


def test_budgets_add_subtract_compare_and_limit():
    budget = Budget(**{name: number for number, name in enumerate(NAMES, start=1)})
    total = budget + Budget(**dict.fromkeys(NAMES, 10))
    assert [getattr(total, name) for name in NAMES] == [number + 10 for number in range(1, len(NAMES) + 1)]
    budget = Budget(env_steps=2, seconds=0.5)
    assert budget + Budget() == budget
    assert sum([budget, budget], Budget()).env_steps == 4
    assert Budget(env_steps=1, seconds=1.0) == Budget(env_steps=1, seconds=2.0) != Budget(env_steps=2)
    with pytest.raises(FrozenInstanceError):
        Budget().env_steps = 1
    assert Budget(env_steps=5, restores=2) - Budget(env_steps=3) == Budget(env_steps=2, restores=2)
    spent = Budget(env_steps=5, model_calls=100, seconds=2.0)
    limits = Budget(), Budget(env_steps=6), Budget(env_steps=5), Budget(env_steps=6, seconds=1.5)
    assert [spent.reached(limit) for limit in limits] == [False, False, True, True]
    with pytest.raises(ConfigError, match=r"wanted env_steps as a whole number >= 0, got 2\.5"):
        Budget(env_steps=2.5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, "5", None])
def test_a_budget_holds_only_numbers_from_zero(name, wrong):
    with pytest.raises(ConfigError, match=f"wanted {name} "):
        Budget(**{name: wrong})
