"""Levels as text: what is read, and how a fault is named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym_envs.sokoban.boards import boards
from tsr_gym import InvalidLevel
from tsr_gym_envs.sokoban.levels import LevelFiles, parse_level, parse_xsb
from tsr_gym_envs.sokoban.rules import cells

PLAIN = "#####\n#@$.#\n#####"


@given(boards(max_side=6))
def test_what_is_written_is_read(rows):
    text = "\n".join(rows)
    assert parse_level(text).to_xsb() == text


def test_the_pieces_stand_where_they_are_drawn():
    state = parse_level("######\n#@$.*#\n#$  .#\n######")
    assert state.player == 7
    assert cells(state.boxes) == [8, 10, 13]
    assert cells(state.level.goals) == [9, 10, 16]
    assert (state.level.height, state.level.width) == (4, 6)


def test_dashes_and_underscores_are_floor():
    assert parse_level("######\n#@-_.#\n#_$-_#\n######") == parse_level("######\n#@  .#\n# $  #\n######")


def test_a_player_on_a_goal_needs_a_box_elsewhere():
    state = parse_level("#####\n#+$ #\n#####")
    assert state.player == cells(state.level.goals)[0]


def test_several_levels_are_told_apart_by_titles_comments_and_blank_lines():
    text = f"; 1\n{PLAIN}\n; 2\n{PLAIN}\n\nTitle of three\n{PLAIN}\n"
    assert parse_xsb(text) == [parse_level(PLAIN)] * 3


@pytest.mark.parametrize("text", [PLAIN, PLAIN.replace("\n", "\r\n"), f"\n\n{PLAIN}\n\n", PLAIN.replace("\n", "   \n")])
def test_line_ends_and_blanks_around_a_board_do_not_matter(text):
    assert parse_xsb(text) == [parse_level(PLAIN)]


def test_a_ragged_outline_has_an_outside_that_nothing_enters():
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
    (
        f"; one\n{PLAIN}\n\n; two\n#####\n#@$.?\n#####",
        r"source, level 2, row 2, column 5 \(line 8\): unknown character",
    ),
    ("#####\n#@$. \n#####", "source, level 1, row 2, column 2 .*: the boundary is open"),
    ("#### \n#@$.#\n#####", None),
    ("## ##\n#@$.#\n#####", "source, level 1, row 2, column 2 .*: the boundary is open"),
    ("#" * 65 + "\n#@$." + " " * 60 + "#\n" + "#" * 65, "source, level 1: wanted at most 64x64 cells, got 3x65"),
    ("#" * 70_000, "source, level 1: wanted at most 64x64 cells"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS, ids=range(len(FAULTS)))
def test_a_malformed_level_is_refused_with_source_level_row_and_column(text, message):
    if message is None:
        # A missing corner touches no floor: diagonals do not leak.
        assert len(parse_xsb(text, source="source")) == 1
        return
    with pytest.raises(InvalidLevel, match=message):
        parse_xsb(text, source="source")


@given(st.text(alphabet=st.sampled_from("# .$*@+-_\n;|3aé\t\r\x0b\u2028"), max_size=60))
def test_text_that_resembles_a_level_is_read_or_refused_and_nothing_else(text):
    try:
        states = parse_xsb(text)
    except InvalidLevel as error:
        assert str(error).startswith("text")  # noqa: PT017
        return
    for state in states:
        assert state.boxes.bit_count() == state.level.goals.bit_count() > 0
        assert not (state.boxes | 1 << state.player | state.level.goals) & state.level.walls


@given(st.text(max_size=80))
def test_arbitrary_text_is_read_or_refused_and_nothing_else(text):
    try:
        assert parse_xsb(text)
    except InvalidLevel as error:
        assert str(error)  # noqa: PT017


def test_one_level_is_not_several():
    with pytest.raises(InvalidLevel, match="wanted one level, got 2"):
        parse_level(f"{PLAIN}\n\n{PLAIN}")


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


def test_a_folder_gives_its_files_in_order_and_reads_them_when_asked(tmp_path):
    files = LevelFiles(filled(tmp_path))
    assert [file.name for file in files.files] == ["a.txt", "b.xsb", "c.txt"]
    assert [len(files.read(number)) for number in (0, 1, 2, 0)] == [2, 1, 3, 2]
    assert [file.name for file in LevelFiles(tmp_path, split="valid").files] == ["c.txt"]
    assert [file.name for file in LevelFiles(tmp_path / "train", split="train").files] == ["a.txt", "b.xsb"]
    assert [file.name for file in LevelFiles(tmp_path / "valid" / "c.txt").files] == ["c.txt"]


def test_a_file_that_was_read_is_not_read_again_at_once(tmp_path):
    files = LevelFiles(filled(tmp_path))
    first = files.read(0)
    (tmp_path / "train" / "a.txt").unlink()
    assert files.read(0) == first


@pytest.mark.parametrize("split", [None, "test"])
def test_missing_files_are_named(tmp_path, split):
    with pytest.raises(InvalidLevel, match="no such file or folder"):
        LevelFiles(tmp_path / "nowhere", split=split)
    with pytest.raises(InvalidLevel, match=r"wanted \.txt, \.xsb or \.sok files"):
        LevelFiles(tmp_path, split=split)


def test_a_fault_in_a_file_names_the_file(tmp_path):
    path = tmp_path / "broken.txt"
    path.write_text("#####\n#@X.#\n#####")
    with pytest.raises(InvalidLevel, match=r"broken\.txt, level 1, row 2, column 3"):
        LevelFiles(path).read(0)
    path.write_bytes(b"#####\n#@\xff.#\n#####")
    with pytest.raises(InvalidLevel, match=r"broken\.txt, level 1, row 2, column 3"):
        LevelFiles(path).read(0)
