"""`tsr tree` and `tsr replay`: what is printed of a tree drawn by hand, and the status of one that differs."""

import json

import gymnasium as gym
import pytest

from tsr_gym import Candidate, Node, Tree
from tsr_gym.agents import cli
from tsr_gym.wrappers import AnswerFormat, SokobanScore, TreeSearchWrapper


def by_hand():
    """0 -> 1 (played), 2; 1 -> 3 (played, solved); 2 -> 4 (a dead end)."""
    tree = Tree(seed=7, about={"env": "tsr/Sokoban-v0"})
    rows = [(None, "", {}), (0, "Up", {}), (0, "Down", {}), (1, "Left", {"success": True}), (2, "Right", {})]
    for number, (parent, text, info) in enumerate(rows):
        depth = 0 if parent is None else tree.nodes[parent].depth + 1
        info = {**info, **({"dead_end": "a box in a corner"} if number == 4 else {})}
        ends = bool(info.get("success"))
        made = Node(parent, depth, Candidate(text), "#P_", float(number), 0.5, ends, False, info, None)
        tree.add(made, played=number in (0, 1, 3))
    return tree


@pytest.fixture
def file(tmp_path):
    by_hand().save(tmp_path / "one.jsonl")
    return tmp_path / "one.jsonl"


def shown(capsys, *args):
    assert cli.main(["tree", *map(str, args)]) == 0
    return capsys.readouterr().out


def test_a_tree_is_drawn_with_rewards_scores_and_what_was_kept(capsys, file):
    heading, *lines = shown(capsys, file).splitlines()
    assert heading.endswith("one.jsonl: tsr/Sokoban-v0, seed 7, 5 nodes, 1 solved, best return 6")
    assert lines == [
        "0: #P_",
        "├── 1: Up  reward 1  score 0.5  played",
        "│   └── 3: Left  reward 3  score 0.5  played, solved",
        "└── 2: Down  reward 2  score 0.5  pruned",
        "    └── 4: Right  reward 4  score 0.5  pruned, dead end: a box in a corner",
    ]


@pytest.mark.parametrize(
    ("args", "nodes"),
    [
        (("--below", 2), ["2", "4"]),
        (("--depth", 1), ["0", "1", "2"]),
        (("--kept",), ["0", "1", "3"]),
        (("--limit", 2), ["0", "1"]),
    ],
    ids=str,
)
def test_a_part_of_a_tree_can_be_chosen(capsys, file, args, nodes):
    lines = [line for line in shown(capsys, file, *args).splitlines()[1:] if "not shown" not in line]
    assert [line.lstrip("│├└─ ").partition(":")[0] for line in lines] == nodes


def test_json_has_the_nodes(capsys, file):
    found = json.loads(shown(capsys, file, "--json"))
    assert (found["solved"], found["best_return"], found["played"]) == (1, 6.0, [0, 1, 3])
    assert [one["kept"] for one in found["tree"]] == [True, True, True, False, False]
    assert found["tree"][2]["return"] == 4.0


def test_of_a_folder_all_trees_are_listed_and_one_can_be_chosen(capsys, file):
    by_hand().save(file.with_name("two.jsonl"))
    assert "two.jsonl" in shown(capsys, file.parent)
    assert "two.jsonl: tsr/Sokoban-v0" in shown(capsys, file.parent, "--number", 1)
    assert cli.main(["tree", str(file.parent), "--number", "2"]) == 2
    assert "wanted --number from 0 to 1, got 2" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["tree", "replay"])
def test_a_file_that_is_cut_short_or_no_tree_is_one_line(capsys, file, command):
    whole = file.read_bytes()
    for bad in (whole[: len(whole) // 2], whole[: whole.rindex(b"{")], b"nothing of a tree", b""):
        file.write_bytes(bad)
        assert cli.main([command, str(file)]) == 1
        said = capsys.readouterr().err
        assert said.startswith(f"tsr {command}: {file}")
        assert said.count("\n") == 1


def test_text_that_looks_like_styles_is_printed_as_it_is(capsys, tmp_path):
    tree = Tree()
    tree.add(Node(None, 0, Candidate(""), "[red]shoes[/red] [buy now]", 0.0, 0.0, False, False, {}, None))
    tree.save(tmp_path / "tree.jsonl")
    assert "0: [red]shoes[/red] [buy now]" in shown(capsys, tmp_path / "tree.jsonl")


@pytest.fixture
def played(tmp_path):
    env = TreeSearchWrapper(SokobanScore(AnswerFormat(gym.make("tsr/Sokoban-v0"))))
    env.reset(seed=2)
    for turn in ("Up", "Left"):
        env.step(f"<think></think><answer>{turn}</answer>")
    env.tree.save(tmp_path / "played.jsonl")
    return tmp_path / "played.jsonl"


def test_a_played_trajectory_is_replayed_bit_for_bit(capsys, played):
    assert cli.main(["replay", str(played)]) == 0
    assert capsys.readouterr().out == f"{played}: 3 nodes, bit for bit\n"


def test_where_a_replay_differs_is_said_and_is_status_1(capsys, played):
    lines = played.read_text().splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | {"reward": 5})
    played.write_text("\n".join(lines) + "\n")
    assert cli.main(["replay", str(played)]) == 1
    assert "node 1 of 3 differs in its reward: saved 5.0, replayed -0.1" in capsys.readouterr().out
    assert cli.main(["replay", str(played), "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["equal"], found["difference"]["field"]) == (1, "reward")


def test_a_tree_without_an_environment_is_refused_with_what_to_do(capsys, file):
    assert cli.main(["replay", str(file)]) == 2
    assert "call tsr_gym.wrappers.replay.replay(tree, env)" in capsys.readouterr().err
