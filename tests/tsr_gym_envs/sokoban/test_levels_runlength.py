"""Run-length boards, titles and collections against boards written out by hand."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsr_gym import InvalidLevel
from tsr_gym_envs.sokoban.generate import generate_room
from tsr_gym_envs.sokoban.levels import LevelFiles, TitledLevel, parse_collection, parse_level, parse_xsb, to_collection
from tsr_gym_envs.sokoban.runlength import expand_runs

PLAIN = """\
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
    lines = written_out(PLAIN)
    assert lines[0] == "2-4#"
    # In the last form the end of a line and a bar both end a row, so a bar at the end of a line ends an empty one.
    text = joint.join(lines) if joint != "|\n" else "|".join(lines[:3]) + "\n" + "|".join(lines[3:])
    assert parse_level(text) == parse_level(PLAIN)


def test_generated_rooms_survive_being_written_as_runs():
    for seed in range(20):
        state = generate_room(seed, dim=(7, 9), num_boxes=2)
        assert parse_level("|".join(written_out(state.to_xsb()))) == state


def test_titles_stand_before_or_below_their_boards():
    assert [level.title for level in parse_collection(COLLECTION)] == ["first", "second # one", "Third"]
    assert [level.state.to_xsb() for level in parse_collection(COLLECTION)][1] == "#####\n#.$@#\n#####"


def test_a_collection_is_read_back_as_it_was_written(tmp_path):
    levels = [*parse_collection(COLLECTION), TitledLevel("two\nlines; #x", parse_level(PLAIN))]
    text = to_collection(levels)
    again = parse_collection(text)
    assert [level.state for level in again] == [level.state for level in levels]
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


@given(st.text(alphabet="# .$*@+-_|\n;0123456789", max_size=300))
def test_arbitrary_boards_are_read_and_written_back_or_refused(text):
    parse_or_refuse(text)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_read_or_refused(data):
    parse_or_refuse(data.decode("utf-8", errors="replace"))


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
