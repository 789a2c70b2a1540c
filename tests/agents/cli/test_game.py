"""A game: moments that are kept and gone on from, what actions would bring, and what a model proposes."""

import io
import json
import re
import shutil

import pytest

from tsr_gym import Tree
from tsr_gym.agents import cli
from tsr_gym.agents.bridges.export import export
from tsr_gym.agents.reports.view.read_files import read_tree
from tsr_gym.records import read_records
from tsr_gym.wrappers import AnswerFormat

# One step and one push from a solution.
CORRIDOR = 'level="######\\n#@ $.#\\n######"'
# Pushed up once, the box can never leave the upper wall.
CORNER = 'level="######\\n#    #\\n# $  #\\n# @  #\\n# .  #\\n######"'
ANSWER = "<think></think><answer>Right</answer>"
START, MIDDLE, SOLVED = "#P_XO#", "#_PXO#", "#__P√#"


@pytest.fixture
def play(capsys, monkeypatch):
    """Return a function that types lines and returns what was shown after each, and after the commands at first."""

    def play(env, *lines, settings=(), flags=()):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        more = ["--env-set", *settings] if settings else []
        assert cli.main(["play", env, *flags, *more]) == 0
        return capsys.readouterr().out.partition("load FILE, quit, help")[2].removeprefix(", model [N]").split("\n> ")

    return play


def test_a_fork_goes_on_from_a_moment_and_keeps_what_was_left(play, tmp_path):
    file = tmp_path / "forks.jsonl"
    lines = ["Right", "fork", "fork", "Right", "fork 1", "Left", "fork 2", "fork 1", f"save {file}"]
    shown = play("sokoban", *lines, settings=[CORRIDOR])
    assert shown[2] == shown[3] == "position 1 is kept: fork 1 returns to it"
    assert shown[5].startswith("the position that you left is kept as 2")
    assert MIDDLE in shown[5]
    assert START in shown[6]
    assert SOLVED in shown[7]
    assert shown[9].strip() == f"{file}: 1 turns, 2 ends"
    # Worked by hand: the first room, one step, and below it the push and the step back.
    tree = Tree.load(file)
    assert [node.parent for node in tree.nodes] == [None, 0, 1, 1]
    assert [node.candidate.text for node in tree.nodes] == ["", "Right", "Right", "Left"]
    assert list(tree.played) == [0, 1]
    assert cli.main(["replay", str(file)]) == 0
    # Forks come back from their file.
    shown = play("sokoban", f"load {file}", "fork 2", "undo", "fork 9", settings=[CORRIDOR])
    assert shown[1].endswith("positions that fork N returns to: 1 to 3")
    assert SOLVED in shown[2]
    assert MIDDLE in shown[3]
    assert shown[4].strip() == "wanted a position from 1 to 3, got 9; fork without a number keeps the current position"


def test_what_was_played_is_saved_at_the_end_and_read_by_all_who_read_trees(play, tmp_path):
    file = tmp_path / "way.jsonl"
    shown = play("sokoban", "Right", "Right", settings=[CORRIDOR], flags=["--out", str(file)])
    assert (shown[-1].strip(), read_tree(file).note) == (f"{file}: 2 turns", "")
    assert export([file], tmp_path / "chat.jsonl", kind="chat").records == 1
    assert read_records(tmp_path / "chat.jsonl", error=ValueError)[0]["messages"][-1]["content"] == ANSWER
    assert export([file], tmp_path / "nodes.jsonl", kind="nodes").records == 3


def test_scores_tell_what_every_action_would_bring_and_change_nothing(play):
    flags = ["--score", "SokobanScore(potential='estimate')"]
    shown = play("sokoban", "Right", "scores", "Right", settings=[CORRIDOR], flags=flags)
    # One unit of way for a step, 1 for the box and 10 for the room.
    assert shown[1].endswith("return -0.1, score 0.9, 4 turns left, 9 actions left")
    tried = dict(line.split(": ", 1) for line in shown[2].splitlines())
    assert list(tried) == ["Up", "Down", "Left", "Right"]
    assert tried["Right"] == "score 11.9, solves it"
    assert float(tried["Left"].removeprefix("score ")) < float(tried["Up"].removeprefix("score "))
    assert "score 11.9, 3 turns left, 8 actions left, solved!" in shown[3]


def test_scores_warn_of_moves_after_which_nothing_can_be_solved(play):
    shown = play("sokoban", "scores", "Up", settings=[CORNER])
    tried = dict(line.split(": ", 1) for line in shown[1].splitlines())
    assert tried["Up"].startswith("reward -0.1, can no longer be solved: ")
    assert tried["Left"] == "reward -0.1"
    assert "can no longer be solved: " in shown[2]


def test_scores_on_the_ice_are_of_several_draws_and_never_of_the_one_that_comes(play):
    room = ['desc=["SFF","FHF","FFG"]']
    tried, *_ = (play("frozen_lake", "scores", "scores", settings=room)[number] for number in (1, 2))
    assert tried.count("\n") == 3
    again = play("frozen_lake", "Down", settings=room)[1]
    assert again == play("frozen_lake", "scores", "Down", settings=room)[2]
    # From the corner, down slips to the right or stays: a hole lies behind both.
    assert "can no longer be solved" not in tried


def test_an_exclamation_mark_makes_a_turn_of_a_word_that_is_a_command(play):
    assert play("sokoban", "!undo", settings=[CORRIDOR])[1].startswith("not understood: ")


def test_a_model_proposes_turns_beside_the_keys(play, base_model, monkeypatch):
    # The small model of the tests has not learned its form, so its answers are read as what they are.
    monkeypatch.setattr(AnswerFormat, "parse", staticmethod(lambda text, *, think: "Up || Down"))
    flags = ["--model", str(base_model), "--samples", "3"]
    shown = play("sokoban", "model", "undo", "model 9", flags=flags)
    proposals = [line for line in shown[0].splitlines() if line.startswith("model ")]
    assert [line.partition(", p ")[0] for line in proposals] == ["model 1: Up || Down (3 of 3"]
    assert "4 turns left" in shown[1]
    # The same position has the same proposals.
    assert [line for line in shown[2].splitlines() if line.startswith("model ")] == proposals
    assert shown[3].startswith("the model has no proposal 9: it made 1")
    # A person sees the board and what the model sees.
    board, _, seen = shown[0].partition("\nthe model sees: ")
    assert board.strip().startswith("######\n#")
    assert seen.startswith("P ")
    assert play("sokoban", "model")[1].startswith("the model has no proposal 1: tsr play --model loads a model")


def test_a_person_sees_the_world_that_the_model_was_made_for(play, base_model, tmp_path):
    shutil.copytree(base_model, tmp_path / "model")
    card = tmp_path / "model" / "tsr_gym.json"
    world = {"observation_mode": "compact", "entities": 300, "questions": 40}
    own = {"env": "tsr/RetrievalQA-v0", "env_settings": world, "prompt": "plain"}
    card.write_text(json.dumps(json.loads(card.read_text()) | own))
    shown = play("retrieval_qa", flags=["--model", str(tmp_path / "model"), "--samples", "1"])[0]
    question, _, seen = shown.partition("\nthe model sees: ask ")
    said = re.sub(r"\W+", " ", question.strip().splitlines()[-1].lower()).split()
    assert said == re.sub(r"\W+", " ", seen.splitlines()[0]).split()
