"""Levels, collections, run-length boards and LURD solutions, against boards written by hand."""

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym_envs.sokoban.boards import boards
from tsr_gym import InvalidLevel
from tsr_gym_envs.sokoban.levels import (
    LevelFiles,
    TitledLevel,
    expand_runs,
    lurd_of_boards,
    parse_collection,
    parse_level,
    parse_lurd,
    parse_xsb,
    play_lurd,
    to_collection,
    walk_to,
)
from tsr_gym_envs.sokoban.rooms import generate_room
from tsr_gym_envs.sokoban.rules import ACTIONS, cells, push, reachable

PLAIN = "#####\n#@$.#\n#####"


@given(boards(max_side=6))
def test_what_is_written_is_read(rows):
    text = "\n".join(rows)
    assert parse_level(text).to_xsb() == text


def test_pieces_stand_where_they_are_drawn_and_blank_lines_separate_levels():
    state = parse_level("######\n#@$.*#\n#$  .#\n######")
    assert state.player == 7
    assert cells(state.boxes) == [8, 10, 13]
    assert cells(state.level.goals) == [9, 10, 16]
    assert (state.level.height, state.level.width) == (4, 6)
    assert parse_level("######\n#@-_.#\n#_$-_#\n######") == parse_level("######\n#@  .#\n# $  #\n######")
    state = parse_level("#####\n#+$ #\n#####")
    assert state.player == cells(state.level.goals)[0]
    text = f"; 1\n{PLAIN}\n; 2\n{PLAIN}\n\nTitle of three\n{PLAIN}\n"
    assert parse_xsb(text) == [parse_level(PLAIN)] * 3
    with pytest.raises(InvalidLevel, match="wanted one level, got 3"):
        parse_level(text)
    # Line ends and blanks around a board do not matter.
    for text in (PLAIN.replace("\n", "\r\n"), f"\n\n{PLAIN}\n\n", PLAIN.replace("\n", "   \n")):
        assert parse_xsb(text) == [parse_level(PLAIN)]
    # Nothing enters the outside of a ragged outline.
    state = parse_level("  ####\n###  #\n#@$ .#\n######")
    assert cells(state.level.outside) == [0, 1]
    assert state.level.outside & ~state.level.walls == 0


FAULTS = [
    ("", "source: wanted at least one level"),
    ("words only", "source: wanted at least one level"),
    (f"{PLAIN}\n\n#####\n#@$ #\n#####", "source, level 2: wanted at least one goal, got none"),
    ("#####\n# $.#\n#####", "source, level 1: wanted one player, got 0"),
    ("######\n#@@$.#\n######", r"source, level 1: wanted one player, got 2 at \(2, 2\) \(2, 3\)"),
    ("######\n#@$$.#\n######", "source, level 1: wanted as many boxes as goals, got 2 boxes and 1 goals"),
    ("#####\n#@X.#\n#####", "source, level 1, row 2, column 3 .*: unknown character 'X'"),
    (f"; one\n{PLAIN}\n\n; two\n#####\n#@$.?\n#####", r"level 2, row 2, column 5 \(line 8\): unknown character"),
    ("#####\n#@$. \n#####", "source, level 1, row 2, column 2 .*: the boundary is open"),
    ("#### \n#@$.#\n#####", None),
    ("## ##\n#@$.#\n#####", "source, level 1, row 2, column 2 .*: the boundary is open"),
    ("#" * 65 + "\n#@$." + " " * 60 + "#\n" + "#" * 65, "source, level 1: wanted at most 64x64 cells, got 3x65"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS, ids=range(len(FAULTS)))
def test_a_malformed_level_is_refused_with_source_level_row_and_column(text, message):
    if message is None:
        # A missing corner touches no floor: diagonals do not leak.
        assert len(parse_xsb(text, source="source")) == 1
        return
    with pytest.raises(InvalidLevel, match=message):
        parse_xsb(text, source="source")


@given(st.text(alphabet=st.sampled_from("# .$*@+-_\n;|3aé\t\r\x0b\u2028"), max_size=60) | st.text(max_size=80))
def test_text_that_resembles_a_level_is_read_or_refused_and_nothing_else(text):
    try:
        states = parse_xsb(text)
    except InvalidLevel as error:
        assert str(error).startswith("text")  # noqa: PT017
        return
    for state in states:
        assert state.boxes.bit_count() == state.level.goals.bit_count() > 0
        assert not (state.boxes | 1 << state.player | state.level.goals) & state.level.walls


@pytest.mark.parametrize("split", [None, "test"])
def test_missing_and_broken_files_are_named(tmp_path, split):
    with pytest.raises(InvalidLevel, match="no such file or folder"):
        LevelFiles(tmp_path / "nowhere", split=split)
    with pytest.raises(InvalidLevel, match=r"wanted \.txt, \.xsb or \.sok files"):
        LevelFiles(tmp_path, split=split)
    path = tmp_path / "broken.txt"
    for text in (b"#####\n#@X.#\n#####", b"#####\n#@\xff.#\n#####"):
        path.write_bytes(text)
        with pytest.raises(InvalidLevel, match=r"broken\.txt, level 1, row 2, column 3"):
            LevelFiles(path).read(0)


@pytest.mark.parametrize(
    "path", ["unfiltered/train/000.txt", "unfiltered/valid/000.txt", "medium/valid/000.txt", "hard/000.txt"]
)
def test_a_file_of_boxoban_is_read_whole(shared, path):
    text = (shared / "data/sokoban/boxoban" / path).read_text(encoding="utf-8")
    states = parse_xsb(text, source=path)
    assert len(states) == sum(line.startswith(";") for line in text.splitlines())
    assert {(s.level.height, s.level.width, s.boxes.bit_count()) for s in states} == {(10, 10, 4)}
    boards = [block.split("\n", 1)[1].strip("\n") for block in text.split(";")[1:]]
    assert [state.to_xsb() for state in states] == boards


@pytest.mark.parametrize("name", ["microban1", "microban2"])
def test_every_level_of_microban_is_read_with_its_ragged_outline(shared, name):
    for line in (shared / f"data/sokoban/{name}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        state = parse_level("\n".join(row["rows"]))
        assert state.to_xsb() == "\n".join(text.rstrip() for text in row["rows"])
        assert state.boxes.bit_count() == row["boxes"]


def filled(folder):
    for name, count in (("train/a.txt", 2), ("train/b.xsb", 1), ("valid/c.txt", 3)):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n\n".join([PLAIN] * count))
    (folder / "train" / "notes.md").write_text("no levels")
    return folder


def test_a_folder_gives_its_files_in_order_and_reads_each_once_when_asked(tmp_path):
    files = LevelFiles(filled(tmp_path))
    assert [file.name for file in files.files] == ["a.txt", "b.xsb", "c.txt"]
    assert [len(files.read(number)) for number in (0, 1, 2, 0)] == [2, 1, 3, 2]
    assert [file.name for file in LevelFiles(tmp_path, split="valid").files] == ["c.txt"]
    assert [file.name for file in LevelFiles(tmp_path / "train", split="train").files] == ["a.txt", "b.xsb"]
    assert [file.name for file in LevelFiles(tmp_path / "valid" / "c.txt").files] == ["c.txt"]
    files = LevelFiles(filled(tmp_path))
    first = files.read(0)
    (tmp_path / "train" / "a.txt").unlink()
    assert files.read(0) == first


DRAWN = """\
  ####
###  ####
#     $ #
# #  #$ #
# . .#@ #
#########"""

COLLECTION = """\
A set of levels by somebody

; first
#####
#@$.#
#####

5#|#.$@#|5#
Title: second # one
Author: Somebody

Third
######
#@ $.#
######
"""


def written_out(rows):
    """Runs of a board, worked out the slow way."""
    lines = []
    for row in rows.replace(" ", "-").split("\n"):
        line = ""
        while row:
            run = len(row) - len(row.lstrip(row[0]))
            line += f"{run if run > 1 else ''}{row[0]}"
            row = row[run:]
        lines.append(line)
    return lines


@pytest.mark.parametrize("joint", ["|", "\n", "|\n"])
def test_a_run_length_board_is_the_board_written_out(joint):
    lines = written_out(DRAWN)
    assert lines[0] == "2-4#"
    # In the last form the end of a line and a bar both end a row, so a bar at the end of a line ends an empty one.
    text = joint.join(lines) if joint != "|\n" else "|".join(lines[:3]) + "\n" + "|".join(lines[3:])
    assert parse_level(text) == parse_level(DRAWN)
    for seed in range(20):
        state = generate_room(seed, dim=(7, 9), num_boxes=2)
        assert parse_level("|".join(written_out(state.to_xsb()))) == state


def test_a_collection_is_read_back_as_it_was_written(tmp_path):
    levels = [*parse_collection(COLLECTION), TitledLevel("two\nlines; #x", parse_level(DRAWN))]
    text = to_collection(levels)
    again = parse_collection(text)
    assert [level.state for level in again] == [level.state for level in levels]
    assert levels[1].state.to_xsb() == "#####\n#.$@#\n#####"
    assert [level.title for level in again] == ["first", "second # one", "Third", "two lines; #x"]
    assert to_collection(again) == text
    (tmp_path / "levels.xsb").write_text(text)
    assert LevelFiles(tmp_path).read(0) == [level.state for level in levels]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5#|#@$.#|5", "level 1, row 3, column 1: wanted a character after the count 5, got the end (line 1)"),
        ("5#|#@0$.#|5#", "level 1, row 2, column 3: wanted at most 64 columns in runs of 1 or more, got 0 (line 1)"),
        ("5#\n#@$.999999999#\n5#", "level 1, row 2, column 5: wanted at most 64 columns"),
        ("5#|#@$x#|5#", "level 1, row 2, column 4 (line 1): unknown character 'x'"),
        ("5#|#@$.#|3#", "level 1, row 2, column 2 (line 1): the boundary is open"),
        ("5#|#@$@#|5#", "level 1: wanted one player, got 2"),
        ("5#|#-$.#|5#", "level 1: wanted one player, got 0"),
        ("6#|#@2$.#|6#", "level 1: wanted as many boxes as goals"),
        ("\n\n#####\n#@$.#\n#####\n\n64#3#|64#", "level 2, row 1, column 65: wanted at most 64 columns"),
        ("|".join(["#"] * 65), "level 1: wanted at most 64x64 cells"),
    ],
)
def test_what_is_wrong_is_named_with_level_row_and_column(text, message):
    with pytest.raises(InvalidLevel) as caught:
        parse_xsb(text, source="some.sok")
    assert str(caught.value).startswith(f"some.sok, {message}")


@given(st.lists(st.tuples(st.integers(1, 9), st.characters(exclude_categories=["Nd"])), max_size=12))
def test_runs_repeat_their_characters(runs):
    text = "".join(f"{count}{glyph}" for count, glyph in runs)
    assert expand_runs(text, 1000) == "".join(count * glyph for count, glyph in runs)


def parse_or_refuse(text):
    start = time.process_time()
    try:
        levels = parse_collection(text)
    except InvalidLevel:
        return
    finally:
        # Not a matter of speed: a text of this size that is worked through takes minutes.
        assert time.process_time() - start < 20
    assert [level.state for level in parse_collection(to_collection(levels))] == [level.state for level in levels]


@given(st.lists(st.text(alphabet=" $.@*-", max_size=6), min_size=1, max_size=5), st.integers(0, 9), st.booleans())
def test_boards_with_walls_around_are_read_and_written_back_or_refused(rows, indent, as_runs):
    width = max(map(len, rows)) + 2
    board = "\n".join(" " * indent + row for row in ["#" * width, *(f"#{row}".ljust(width - 1) + "#" for row in rows)])
    board += "\n" + " " * indent + "#" * width
    parse_or_refuse("|".join(written_out(board)) if as_runs else board)


@pytest.mark.parametrize(
    "text", ["9" * 100_000 + "#", "9#" * 100_000, "#|" * 100_000, "64#|" * 10_000, "#\n" * 100_000]
)
def test_huge_texts_are_refused_at_once(text):
    parse_or_refuse(text)
    with pytest.raises(InvalidLevel):
        parse_collection(text)


ROOM = parse_level("########\n#@     #\n# $    #\n#   $  #\n#  . . #\n########")


@given(st.text(alphabet="# .$*@+-_|\n;0123456789", max_size=300), st.binary(max_size=300))
def test_arbitrary_boards_and_bytes_are_read_and_written_back_or_refused(text, data):
    parse_or_refuse(text)
    parse_or_refuse(data.decode("utf-8", errors="replace"))


@given(st.text(max_size=200))
def test_letters_are_actions_counts_repeat_them_and_other_text_is_refused(text):
    assert [ACTIONS[action] for action in parse_lurd("uD l\n2R")] == ["Up", "Down", "Left", "Right", "Right"]
    with suppress(InvalidLevel):
        assert set(parse_lurd(text)) <= {0, 1, 2, 3}
    for wrong in ("x", "u?", "3", "2l0r", "999999999999u", "u" * 20 + "٣r"):
        with pytest.raises(InvalidLevel, match="solution"):
            parse_lurd(wrong)


def test_pushes_are_joined_by_shortest_walks_and_wrong_letters_are_named():
    with pytest.raises(ValueError, match="reach"):
        walk_to(ROOM, 0)
    boards = [play_lurd(ROOM, "rD").boxes, play_lurd(ROOM, "rDurrrldD").boxes]
    assert lurd_of_boards(ROOM, boards) == "rDrrD"
    for lurd, message in (("l", "1: wanted a free cell"), ("rd", "2: wanted a move"), ("R", "1: wanted a push")):
        with pytest.raises(InvalidLevel, match=f"letter {message}"):
            play_lurd(ROOM, lurd)


@given(st.lists(st.integers(0, 3), max_size=60))
def test_a_walk_is_as_short_as_a_search_by_single_moves_finds(actions):
    state = ROOM
    for action in actions:
        state = push(state, action)
    distance = {state.player: 0}
    for cell in (queue := [state.player]):
        for action in range(4):
            after = push(state._replace(player=cell), action)
            if after.boxes == state.boxes and after.player not in distance:
                distance[after.player] = distance[cell] + 1
                queue.append(after.player)
    assert set(distance) == {cell for cell in range(48) if reachable(state) >> cell & 1}
    for cell, moves in distance.items():
        walk = walk_to(state, cell)
        assert len(walk) == moves
        assert play_lurd(state, "".join("udlr"[action] for action in walk)).player == cell
