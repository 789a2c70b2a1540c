"""`tsr play`, by a script of lines: undone turns come back, and the end of the input ends the game."""

import io
import re

import gymnasium as gym
import pytest

from tsr_gym.agents import cli

# One step and one push from a solution.
CORRIDOR = 'level="######\\n#@ $.#\\n######"'
COMMANDS = "undo, restart, next, hint, scores, fork [N], save FILE, load FILE, quit, help"
START, MIDDLE, SOLVED = "#P_XO#", "#_PXO#", "#__P√#"


@pytest.fixture
def play(capsys, monkeypatch):
    """Return a function that types lines, the end of input after them, and returns what was shown after each."""

    def play(env, *lines, settings=(), seed=0, flags=()):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        more = ["--env-set", *settings] if settings else []
        assert cli.main(["play", env, "--seed", str(seed), *more, *flags]) == 0
        shown = capsys.readouterr().out
        opening, commands, shown = shown.partition(f"; or: {COMMANDS}\n")
        assert commands
        play.opening = opening
        return shown.split("\n> ")

    return play


def rows(answers):
    """Return the middle row of the corridor after each line, None where it was not shown."""
    found = [re.search("^#[^#]+#$", answer, re.MULTILINE) for answer in answers]
    return [match and match.group() for match in found]


def test_what_is_typed_is_done_and_what_it_brought_is_told(play):
    first, one, two, end = play("sokoban", "right", "Right", settings=[CORRIDOR])
    assert "return 0, 5 turns left, 10 actions left" in first
    assert one == f"\n######\n{MIDDLE}\n######\nreturn -0.1, 4 turns left, 9 actions left"
    # Two steps at 0.1, a box for 1, the room for 10.
    assert two == f"\n######\n{SOLVED}\n######\nreturn 10.8, 3 turns left, 8 actions left, solved!"
    assert end.strip() == ""
    # Several actions make one turn.
    shown = play("sokoban", "Right || right", settings=[CORRIDOR])[1]
    assert "return 10.8, 4 turns left, 8 actions left, solved!" in shown


def test_every_turn_can_be_undone_back_to_the_start_and_no_further(play):
    shown = play("sokoban", "Right", "Up", "Right", "undo", "u", "undo", "undo", "Right", settings=[CORRIDOR])
    assert rows(shown[:9]) == [START, MIDDLE, MIDDLE, SOLVED, MIDDLE, MIDDLE, START, None, MIDDLE]
    assert shown[4] == shown[2]
    assert shown[5] == shown[1] == shown[8]
    assert shown[7] == "nothing to undo"


def test_what_is_undone_on_the_ice_comes_again_just_the_same(play):
    shown = play("frozen_lake", "Right", "undo", "Right", "undo", "Right", settings=['desc=["FFF","FSF","FFG"]'])
    assert shown[1] == shown[3] == shown[5]
    # Other dice in another episode.
    others = {play("frozen_lake", "Right", settings=['desc=["FFF","FSF","FFG"]'], seed=seed)[1] for seed in range(12)}
    assert len(others) == 3


def test_restart_begins_the_same_room_and_next_another(play):
    shown = play("sokoban", "Up", "restart", "undo", "next", "Up", "r", "n", seed=3)
    board = {seed: gym.make("tsr/Sokoban-v0").reset(seed=seed)[0] for seed in (3, 4, 5)}
    starts = {seed: f"\n{board[seed]}\nreturn 0, 5 turns left, 10 actions left" for seed in board}
    assert shown[0].endswith(starts[3])
    assert (shown[2], shown[3]) == (starts[3], "nothing to undo")
    assert shown[4] == shown[6] == starts[4]
    assert shown[7].rstrip() == starts[5]


def test_a_hint_is_a_solution_and_costs_nothing(play):
    shown = play("sokoban", "hint", "h", "Right", "hint", "Right", "hint", settings=[CORRIDOR])
    assert (shown[1], shown[2], shown[4]) == ("Right || Right", "Right || Right", "Right")
    assert "5 turns left" in shown[0]
    assert "4 turns left" in shown[3]
    assert shown[6].startswith("no hint for this position")
    stuck = 'level="#####\\n#$@.#\\n#####"'
    assert play("sokoban", "hint", settings=[stuck])[1].startswith("no hint for this position")


@pytest.mark.parametrize("seed", range(3))
def test_whoever_follows_the_hints_solves_a_generated_room(play, seed):
    lines = []
    *_, position, hint, _ = play("sokoban", "hint", seed=seed)
    while "solved!" not in position:
        lines.append(hint)
        assert len(lines) <= 5
        *_, position, hint, _ = play("sokoban", *lines, "hint", seed=seed)
    assert lines


def test_words_that_mean_nothing_are_told_why_and_cost_nothing(play):
    shown = play("sokoban", "please", "Right || oops", "", "undo", "Right", settings=[CORRIDOR])
    assert shown[1] == "not understood: 'please' is no action: write Up, Down, Left or Right; the position is unchanged"
    # Not even the part of a turn that was understood.
    assert shown[2] == "not understood: 'oops' is no action: write Up, Down, Left or Right; the position is unchanged"
    assert shown[3] == "not understood: the turn holds no action; the position is unchanged"
    assert shown[4] == "nothing to undo"
    assert shown[5].endswith(f"{MIDDLE}\n######\nreturn -0.1, 4 turns left, 9 actions left")
    # Nor the dice.
    settings = ['desc=["FFF","FSF","FFG"]']
    for seed in range(5):
        plain = play("frozen_lake", "Right", settings=settings, seed=seed)
        assert play("frozen_lake", "jump", "Right", settings=settings, seed=seed)[2] == plain[1]


def test_rules_legend_and_actions_are_shown_at_the_beginning_and_for_help(play):
    _, asked, mark, _ = play("sokoban", "help", "?", settings=[CORRIDOR])
    for text in (play.opening, asked, mark):
        flat = " ".join(text.split())
        assert "# is a wall, _ floor, O a target, X a box" in flat
        assert "actions: Up, Down, Left, Right, several joined by ||" in flat
        assert "<answer>" not in flat
    play("retrieval_qa")
    # There, the tags are what one writes.
    assert "<search> your query </search>" in " ".join(play.opening.split())


def test_what_can_be_clicked_in_the_shop_is_shown_with_every_page(play):
    first, results, item, wrong, bought, _ = play(
        "webshop", "search[jeans]", "click[next >]", "click[nothing like it]", "search[mug]"
    )
    assert "for example: search[" in first
    asins = re.findall(r"click\[(b[0-9a-z]{9})\]", results)
    assert len(asins) == 10
    assert all(asin.upper() in results for asin in asins)
    assert "click[back to search], click[next >]" in " ".join(results.split())
    assert "click[< prev]" in item
    assert wrong.startswith("not understood: the page shows no 'nothing like it' to click")
    assert "Total results" in bought
    # A page is lines, not one text with separators.
    assert "[SEP]" not in first
    assert "Instruction:" in first


def test_after_the_end_one_can_only_go_back_or_on(play):
    shown = play("sokoban", "Right || Right", "Left", "undo", "Left", settings=[CORRIDOR])
    assert shown[2] == "the episode is over: undo, fork, restart, next or quit"
    assert rows(shown[3:5]) == [START, START]
    gone = play("frozen_lake", *["Up"] * 6, "hint", settings=["max_turns=5", "is_slippery=false", 'desc=["SF","FG"]'])
    assert gone[6] == "the episode is over: undo, fork, restart, next or quit"


def test_a_push_that_ruins_everything_is_told_until_it_is_undone(play):
    wall = 'level="######\\n# @  #\\n# $ .#\\n#    #\\n######"'
    shown = play("sokoban", "Left", "Right", "Down", "undo", settings=[wall])
    assert "can no longer" not in shown[0] + shown[1] + shown[2] + shown[4]
    assert shown[3].endswith("can no longer be solved: dead square")


@pytest.fixture
def level_file(tmp_path):
    """Three levels, the last one larger than what a table of all positions would hold."""
    large = [
        "############", "#@         #", *["#          #"] * 6, "# $ $  $ $ #", "#  .. ..   #", "#          #",
        "#" * 12,
    ]  # fmt: skip
    path = tmp_path / "levels.xsb"
    path.write_text("\n\n".join(["####\n#@ #\n#$ #\n#. #\n####", "#####\n#@$.#\n#####", "\n".join(large)]))
    return path


def test_levels_of_a_file_are_played_in_their_order_without_limits(play, level_file):
    lines = [*["Up", "Down"] * 8, "next", "Right", "next", "Right", "next"]
    shown = play("sokoban", *lines, flags=["--levels", str(level_file)])
    assert "\n#P_#\n#X_#\n#O_#\n" in shown[0]
    assert "left" not in "".join(shown).replace("to the left", "")
    assert rows(shown[17:19]) == ["#PXO#", "#_P√#"]
    assert shown[21].startswith("there is no next instance: wanted the number of a room below 3, got 3")
    assert rows(play("sokoban", seed=1, flags=["--levels", str(level_file)]))[0] == "#PXO#"


def test_hints_on_a_large_level_come_from_the_solver_a_few_actions_at_a_time(play, level_file):
    shown = play("sokoban", "hint", seed=2, flags=["--levels", str(level_file)])
    first, more = shown[1].split(" and ")
    assert len(first.split(" || ")) == 5
    assert re.fullmatch(r"\d+ more actions", more.strip())


@pytest.mark.parametrize("word", ["quit", "q", " QUIT "])
def test_quit_leaves_at_once(play, word):
    assert rows(play("sokoban", "Right", word, "Right", settings=[CORRIDOR])) == [START, MIDDLE, None]


def test_a_hint_keeps_the_blanks_of_an_action_that_is_a_whole_text(play):
    _, hint, results, _ = play("webshop", "hint", "search[red shoes]")
    assert play.opening.endswith("actions")
    assert re.match(r"\s*search\[\w+ .*\]\s*$", hint)
    assert "Page 1 (Total results:" in results


def test_a_trajectory_is_saved_loaded_undone_and_replayed(play, tmp_path, capsys):
    file = tmp_path / "way.jsonl"
    lines = ["Right", f"save {file}", "Right", f"load {file}", "undo", "undo"]
    shown = play("sokoban", *lines, settings=[CORRIDOR])
    assert shown[2] == f"{file}: 1 turns"
    assert rows(shown[3:6]) == [SOLVED, MIDDLE, START]
    assert shown[4] == shown[1]
    assert shown[6].startswith("nothing to undo")
    assert cli.main(["replay", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: 2 nodes, bit for bit\n"


def test_what_is_no_trajectory_of_the_game_changes_nothing(play, tmp_path):
    other, damaged = tmp_path / "other.jsonl", tmp_path / "damaged.jsonl"
    play("frozen_lake", f"save {other}")
    damaged.write_text("nothing")
    lines = ["Right", f"load {other}", f"load {damaged}", f"load {tmp_path / 'none.jsonl'}", "undo"]
    shown = play("sokoban", *lines, settings=[CORRIDOR])
    assert "wanted a snapshot of" in shown[2]
    assert "damaged" in shown[3]
    assert "wanted a file, got none" in shown[4]
    assert rows(shown[5:6]) == [START]


def test_a_file_that_cannot_be_written_is_refused_before_the_first_move(capsys, monkeypatch, tmp_path):
    for out in (tmp_path / "none" / "game.jsonl", tmp_path):
        assert cli.main(["play", "sokoban", "--out", str(out)]) == 2
        assert capsys.readouterr().err == f"tsr play: wanted --out as a file in a folder that is there, got {out}\n"
    # The folder disappears while the game is played.
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr("sys.stdin", io.StringIO("up\n"))
    monkeypatch.setattr("tsr_gym.agents.cli.game.Game.postloop", lambda game: (tmp_path / "folder").rmdir())
    assert cli.main(["play", "sokoban", "--out", str(tmp_path / "folder" / "game.jsonl")]) == 1
