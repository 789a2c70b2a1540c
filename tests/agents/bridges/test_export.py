"""Exports: every line can be traced to the tree that it names, and unusable trees and kinds are refused."""

import json
import shutil
from typing import NamedTuple

import pytest

from tests.agents.bridges.helpers import grown_trees
from tests.agents.bridges.test_labels import sampled, small_tree
from tests.agents.episodes.test_trajectory import tree_of
from tests.agents.worlds import PUSHER, rooms
from tsr_gym import ConfigError, InvalidTree
from tsr_gym.agents.bridges.export import Exported, export, tree_chats, tree_files
from tsr_gym.agents.strategies import naive
from tsr_gym_envs.frozen_lake.env import FrozenLakeEnv


@pytest.fixture
def saved(tmp_path):
    """The file of a small tree."""
    small_tree().save(tmp_path / "small.jsonl")
    return tmp_path / "small.jsonl"


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_each_preference_is_a_line_with_the_columns_of_a_trainer(saved, tmp_path):
    out = tmp_path / "pairs.jsonl"
    assert export([saved], out) == Exported(trees=1, records=2)
    assert lines(out)[0] == {
        "tree": str(saved),
        "prompt_ids": [100],
        "chosen_ids": [2],
        "rejected_ids": [1],
        "chosen_logprobs": [-0.2],
        "rejected_logprobs": [-0.1],
        "gap": 4.0,
        "node": 0,
    }


def test_the_kind_may_have_settings(saved, tmp_path):
    out = tmp_path / "pairs.jsonl"
    # Of three children each is compared with each: three pairs, and one below.
    assert export([saved], out, kind="preferences(pairing='all')").records == 4
    # Node 2 was left, and the other two have the same mean return: only the pair at node 1 remains.
    assert export([saved], out, kind="preferences(worth='mean_return')").records == 1
    assert [(row["chosen_ids"], row["gap"]) for row in lines(out)] == [([4, 4], 4.0)]


def test_step_values_are_a_line_each(tmp_path):
    # Turn 1 leads to 2, worth 1 + 0, and to 3, worth 1 + 4.
    tree = tree_of(
        sampled(0, 1, [1], 1.0, prompt=(7,)),
        sampled(1, 2, [2], 0.0, prompt=(7, 1, 8), end=True),
        sampled(1, 2, [3], 4.0, prompt=(7, 1, 8), end=True),
    )
    tree.save(tmp_path / "tree.jsonl")
    out = tmp_path / "values.jsonl"
    assert export([tmp_path / "tree.jsonl"], out, kind="step-values") == Exported(1, 3)
    values = [
        (row["prompt_ids"], row["response_ids"], row["value"], row["trajectories"], row["turn"]) for row in lines(out)
    ]
    assert values == [([7], [1], 3.0, 2, 0), ([7, 1, 8], [2], 1.0, 1, 1), ([7, 1, 8], [3], 5.0, 1, 1)]
    assert {(row["tree"], row["task"]) for row in lines(out)} == {(str(tmp_path / "tree.jsonl"), tree.seed)}


class Length(NamedTuple):
    nodes: int


def lengths(tree, *, of="nodes"):
    return [Length(len(tree.nodes))]


def test_another_kind_is_named_by_its_module(saved, tmp_path):
    export([saved, saved], tmp_path / "out.jsonl", kind=f"{__name__}:lengths(of='nodes')")
    assert lines(tmp_path / "out.jsonl") == [{"tree": str(saved), "nodes": 6}] * 2


def test_a_run_stands_for_its_trees_and_a_folder_for_those_in_it(undisturbed, saved):
    files = list(tree_files(undisturbed))
    assert files
    assert {path.relative_to(undisturbed).parts[0] for path in files} == {"trees"}
    assert list(tree_files(saved.parent)) == [saved]


def test_an_older_file_stays_where_something_is_wrong(saved, tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("older\n")
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_bytes(saved.read_bytes()[:-40])
    with pytest.raises(InvalidTree, match=r"damaged\.jsonl, line 7: not a node of a tree"):
        export([saved, damaged], out)
    assert out.read_text() == "older\n"
    assert not list(tmp_path.glob("*.partial"))


def test_a_tree_without_tokens_is_refused(tmp_path):
    env = rooms(1)
    env.search(PUSHER, naive).save(tmp_path / "scripted.jsonl")
    for kind in ("preferences", "step-values"):
        with pytest.raises(InvalidTree, match=r"scripted\.jsonl: its turns have no token ids"):
            export([tmp_path / "scripted.jsonl"], tmp_path / "out.jsonl", kind=kind)
    assert not (tmp_path / "out.jsonl").exists()


def test_without_records_nothing_is_written(tmp_path):
    tree_of(sampled(0, 1, [1], 1.0, end=True)).save(tmp_path / "lonely.jsonl")
    with pytest.raises(InvalidTree, match="the 1 trees hold no preferences: nothing was written"):
        export([tmp_path / "lonely.jsonl"], tmp_path / "out.jsonl")
    # An episode that ended before its first turn is no damage.
    tree_of().save(tmp_path / "empty.jsonl")
    with pytest.raises(InvalidTree, match="the 1 trees hold no step-values"):
        export([tmp_path / "empty.jsonl"], tmp_path / "out.jsonl", kind="step-values")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "preference",
            "wanted kind of preferences, .*, nodes, chat or package.module:name, got 'preference'",
        ),
        ("preferences(depth=3)", r"has no \['depth'\]"),
        ("preferences(worth='money')", r"wanted worth of \['merit', 'mean_return'\]"),
        ("preferences(pairing='some')", "pairing of .*, got <function merit"),
        ("step-values(backup", "wanted the kind of records as name"),
        ("no.such.module:name", "there is no kind of records 'no.such.module:name'"),
    ],
)
def test_unknown_kinds_are_refused(saved, tmp_path, kind, message):
    with pytest.raises(ConfigError, match=message):
        export([saved], tmp_path / "out.jsonl", kind=kind)
    assert not (tmp_path / "out.jsonl").exists()


def test_without_trees_there_is_nothing_to_export(undisturbed, tmp_path):
    with pytest.raises(ConfigError, match="at least one run"):
        export([], tmp_path / "out.jsonl")
    with pytest.raises(ConfigError, match="nowhere: wanted the folder of a run or a file of a tree, found nothing"):
        export([tmp_path / "nowhere"], tmp_path / "out.jsonl")
    bare = shutil.copytree(undisturbed, tmp_path / "bare", ignore=shutil.ignore_patterns("trees"))
    with pytest.raises(ConfigError, match=r"bare/trees: found no trees"):
        export([bare], tmp_path / "out.jsonl")


def test_a_chat_is_the_words_of_a_path_in_turn():
    (tree,), _, _ = grown_trees(strategy="naive")
    (chat,) = tree_chats(tree, prompt="plain", successes=False)
    assert [message["role"] for message in chat.messages] == ["system", *["user", "assistant"] * 3]
    assert chat.messages[0]["content"] == FrozenLakeEnv.instructions
    path = tree.path(tree.leaves()[0])
    assert [message["content"] for message in chat.messages[1::2]] == [tree.nodes[at].observation for at in path[:-1]]
    assert [message["content"] for message in chat.messages[2::2]] == [tree.nodes[at].candidate.text for at in path[1:]]
    assert chat.task == tree.seed


def test_only_successes_are_shown_unless_all_are_wanted_and_instructions_may_be_given():
    env = rooms(1)
    tree = env.search(PUSHER, naive)
    (chat,) = tree_chats(tree, prompt="plain", successes=False, instructions="Push.")
    assert chat.messages[0] == {"role": "system", "content": "Push."}
    assert len(tree_chats(tree)) == chat.success
    assert tree_chats(tree, prompt="compact", successes=False)[0].messages[0]["role"] == "user"


def test_an_unknown_prompt_is_refused():
    with pytest.raises(ConfigError, match="wanted a prompt of"):
        tree_chats(rooms(1).search(PUSHER, naive), prompt="rhymes")
