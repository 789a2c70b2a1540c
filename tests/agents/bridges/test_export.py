"""Export, the command behind it, and the labels of reward models: preferences and values of turns."""

import json
import shutil
from math import isnan
from typing import NamedTuple

import pytest

from tests.agents.bridges.helpers import grown_trees
from tests.agents.episodes.test_trajectory import tree_of
from tests.agents.learning.advantages.forests import Sampled, leaf, path
from tests.agents.learning.test_batch import episode
from tests.agents.learning.test_batch import turn as turn_of
from tests.agents.worlds import PUSHER, rooms
from tsr_gym import Candidate, ConfigError, InvalidTree, Node
from tsr_gym.agents.bridges.export import (
    Exported,
    Pair,
    StepValue,
    export,
    mean_return,
    merit,
    sibling_pairs,
    step_values,
    tree_chats,
    tree_files,
)
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.strategies import naive
from tsr_gym_envs.frozen_lake.env import FrozenLakeEnv


def sampled(parent, depth, ids, reward, *, score=None, end=False, prompt=None):
    """Return a node whose candidate has some token ids, sampled with log-probability -0.1 times the id."""
    prompt = (100 + parent,) if prompt is None else prompt
    candidate = Candidate(str(ids), prompt, tuple(ids), tuple(-0.1 * number for number in ids))
    return Node(parent, depth, candidate, "", reward, reward if score is None else score, end, False, {}, None)


def small_tree():
    """Node 0 has children 1, 2 and 3, node 1 the children 4 and 5; 4, 5 and 3 are ends, 2 was left."""
    return tree_of(
        sampled(0, 1, [1], 1.0, score=5.0),
        sampled(0, 1, [2], 0.0, score=9.0),
        sampled(0, 1, [3], 2.0, score=7.0, end=True),
        sampled(1, 2, [4, 4], 3.0, score=1.0, end=True),
        sampled(1, 2, [5], -1.0, score=2.0, end=True),
    )


def kinds(pairs):
    return [(pair.chosen_ids, pair.rejected_ids) for pair in pairs]


def test_preferences_are_of_higher_scores_or_better_mean_returns_and_never_of_noise():
    tree = small_tree()
    assert sibling_pairs(tree) == [
        Pair((100,), (2,), (1,), (-0.2,), (-0.1,), gap=4.0, node=0),
        Pair((101,), (5,), (4, 4), (-0.5,), (-0.4, -0.4), gap=1.0, node=1),
    ]
    # Through node 1: returns 4 and 0, mean 2; node 3 has 2 as well. Node 2 was left.
    worth = mean_return(tree)
    assert worth[:2] == [2.0, 2.0]
    assert isnan(worth[2])
    assert worth[3:] == [2.0, 4.0, 0.0]
    # Equal worth is no preference.
    assert kinds(sibling_pairs(tree, worth=mean_return)) == [((4, 4), (5,))]
    tree = tree_of(sampled(0, 1, [1], 0.1 + 0.2, end=True), sampled(0, 1, [2], 0.3, end=True))
    assert sibling_pairs(tree, worth=mean_return) == []


@pytest.mark.parametrize(
    ("pairing", "expected"),
    [
        ("extremes", [((2,), (1,))]),
        ("against_best", [((2,), (3,)), ((2,), (1,))]),
        ("all", [((2,), (3,)), ((2,), (1,)), ((3,), (1,))]),
    ],
)
def test_each_pairing_compares_its_pairs(pairing, expected):
    pairs = sibling_pairs(small_tree(), pairing=pairing)
    assert kinds(pair for pair in pairs if pair.node == 0) == expected
    # A margin drops small differences. At node 0 by 2, 4 and 2; at node 1 by 1.
    gaps = [[pair.gap for pair in sibling_pairs(small_tree(), pairing="all", margin=least)] for least in (1.5, 3.0)]
    assert gaps == [[2.0, 4.0, 2.0], [4.0]]


def test_only_answers_to_the_same_prompt_are_compared_and_each_once():
    rows = ([1], 0.0, (7,)), ([2], 1.0, (7,)), ([2], 5.0, (7,)), ([3], 9.0, (8,)), ([], 3.0, (7,))
    tree = tree_of(*[sampled(0, 1, ids, reward, prompt=prompt) for ids, reward, prompt in rows])
    # A repeated candidate counts with its first node, and a candidate without tokens cannot be learned from.
    assert [(pair.prompt_ids, pair.gap) for pair in sibling_pairs(tree)] == [((7,), 1.0)]
    # A single candidate has no pair.
    assert sibling_pairs(tree_of(sampled(0, 1, [1], 1.0), sampled(1, 2, [2], 1.0))) == []
    assert isnan(merit(tree_of())[0])


def tree():
    """Turn 1 leads to 2, worth 0, and to 3, worth 4; turn 4 was left."""
    left = path(Sampled(4, 9.0), finished=False)
    return Group(50, (leaf([1, 2], 0.0), leaf([1, 3], 4.0), left))


def test_every_turn_has_a_row_with_its_tokens_and_its_value():
    assert step_values([tree()]) == [
        StepValue(50, (1,), (11, 12), 2.0, 2, 0),
        StepValue(50, (1, 11, 12, 2), (12, 13), 0.0, 1, 1),
        StepValue(50, (1, 11, 12, 2), (13, 14), 4.0, 1, 1),
    ]
    assert step_values([tree()], unfinished="return")[-1] == StepValue(50, (1,), (14, 15), 9.0, 1, 0)
    group = Group(1, (leaf([1, 2, 3], 0.0), leaf([1, 2, 4], 2.0), leaf([1, 5], 4.0)))
    assert step_values([group])[0].value == 2.5
    assert step_values([group], backup="leaf_mean")[0].value == pytest.approx(2.0)


def test_tasks_are_those_of_the_groups_also_where_a_group_has_no_tokens():
    silent = Group(51, (episode(turn_of([1], [], 0.0)),))
    labels = step_values([Group(49, (leaf([1], 3.0),)), silent, tree()])
    assert [row.task for row in labels] == [49, 50, 50, 50]


def test_a_prompt_that_begins_anew_is_that_of_the_turn_alone():
    group = Group(1, (episode(turn_of([1, 2], [3], 0.0, -1), turn_of([7], [8, 9], 1.0, -1, -1)),))
    assert step_values([group]) == [StepValue(1, (1, 2), (3,), 1.0, 1, 0), StepValue(1, (7,), (8, 9), 1.0, 1, 1)]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A folder with a tokenizer in which token n is the word "n", after a first token that stands before any text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({"<s>": 9, **{str(number): number for number in range(9)}}))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 9)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.chdir(tmp_path)


PREFERENCES = "preferences(tokenizer='.')"


@pytest.fixture
def saved(tmp_path):
    """The file of a small tree."""
    small_tree().save(tmp_path / "small.jsonl")
    return tmp_path / "small.jsonl"


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_each_preference_is_a_line_with_the_columns_of_a_trainer(saved, tmp_path):
    out = tmp_path / "pairs.jsonl"
    texts = [sampled(0, 1, ids, reward, prompt=(9, 3, 4)) for ids, reward in (([2], 1.0), ([1, 5], 0.0))]
    tree_of(*texts).save(tmp_path / "texts.jsonl")
    assert export([saved, tmp_path / "texts.jsonl"], out, kind=PREFERENCES) == Exported(trees=2, records=3)
    assert [lines(out)[2][name] for name in ("prompt", "chosen", "rejected")] == ["3 4", "2", "1 5"]
    texts = {"prompt": "", "chosen": "2", "rejected": "1", "tree": str(saved)}
    ids = {"prompt_ids": [100], "chosen_ids": [2], "rejected_ids": [1]}
    numbers = {"chosen_logprobs": [-0.2], "rejected_logprobs": [-0.1], "gap": 4.0, "node": 0}
    assert lines(out)[0] == texts | ids | numbers


def test_the_tokenizer_of_a_run_is_that_of_its_newest_checkpoint_and_other_trees_need_one(saved, tmp_path):
    out, folder = tmp_path / "out.jsonl", tmp_path / "runs/a/checkpoints/000002/model"
    folder.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"wanted preferences\(tokenizer='FOLDER'\)"):
        export([saved], out)
    (tmp_path / "runs/a/run.toml").touch()
    shutil.copy(saved, tmp_path / "runs/a/tree.jsonl")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match=r"000002/model/tokenizer.json: wanted a tokenizer"):
        export([tmp_path / "runs/a/tree.jsonl"], out)


def test_the_kind_may_have_settings(saved, tmp_path):
    out = tmp_path / "pairs.jsonl"
    # Of three children each is compared with each: three pairs, and one below.
    assert export([saved], out, kind="preferences(tokenizer='.', pairing='all')").records == 4
    # Node 2 was left, and the other two have the same mean return: only the pair at node 1 remains.
    assert export([saved], out, kind="preferences(tokenizer='.', worth='mean_return')").records == 1
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
    names = ("prompt_ids", "response_ids", "value", "trajectories", "turn")
    values = [tuple(row[name] for name in names) for row in lines(out)]
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
        export([saved, damaged], out, kind=PREFERENCES)
    assert out.read_text() == "older\n"
    assert not list(tmp_path.glob("*.partial"))


def test_trees_without_tokens_or_records_are_refused_and_nothing_is_written(tmp_path):
    rooms(1).search(PUSHER, naive).save(tmp_path / "scripted.jsonl")
    for kind in ("preferences", "step-values"):
        with pytest.raises(InvalidTree, match=r"scripted\.jsonl: its turns have no token ids"):
            export([tmp_path / "scripted.jsonl"], tmp_path / "out.jsonl", kind=kind)
    assert not (tmp_path / "out.jsonl").exists()
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
        ("preference", "wanted kind of preferences, .*, nodes, chat or package.module:name, got 'preference'"),
        ("preferences(worth='money')", r"wanted worth of \['merit', 'mean_return'\]"),
        ("preferences(pairing='some')", "pairing of .*, got <function merit"),
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


def test_a_chat_is_the_words_of_a_successful_path_unless_all_are_wanted():
    (tree,), _, _ = grown_trees(strategy="naive")
    (chat,) = tree_chats(tree, prompt="plain", successes=False)
    assert [message["role"] for message in chat.messages] == ["system", *["user", "assistant"] * 3]
    assert chat.messages[0]["content"] == FrozenLakeEnv.instructions
    path = tree.path(tree.leaves()[0])
    assert [message["content"] for message in chat.messages[1::2]] == [tree.nodes[at].observation for at in path[:-1]]
    assert [message["content"] for message in chat.messages[2::2]] == [tree.nodes[at].candidate.text for at in path[1:]]
    assert chat.task == tree.seed
    tree = rooms(1).search(PUSHER, naive)
    (chat,) = tree_chats(tree, prompt="plain", successes=False, instructions="Push.")
    assert chat.messages[0] == {"role": "system", "content": "Push."}
    assert len(tree_chats(tree)) == chat.success
    assert tree_chats(tree, prompt="compact", successes=False)[0].messages[0]["role"] == "user"
    with pytest.raises(ConfigError, match="wanted a prompt of"):
        tree_chats(rooms(1).search(PUSHER, naive), prompt="rhymes")
