"""LURD text against the rules themselves."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsr_gym import InvalidLevel
from tsr_gym_envs.sokoban.levels import parse_level
from tsr_gym_envs.sokoban.lurd import lurd_of_boards, parse_lurd, play_lurd, to_lurd, walk_to
from tsr_gym_envs.sokoban.rules import ACTIONS, push, reachable

ROOM = parse_level("########\n#@     #\n# $    #\n#   $  #\n#  . . #\n########")


def test_letters_are_actions_counts_repeat_them_and_blanks_are_skipped():
    assert [ACTIONS[action] for action in parse_lurd("uD l\n2R")] == ["Up", "Down", "Left", "Right", "Right"]


@pytest.mark.parametrize("text", ["x", "u?", "3", "2l0r", "999999999999u", "u" * 20 + "٣r"])
def test_what_is_no_solution_is_refused(text):
    with pytest.raises(InvalidLevel, match="solution"):
        parse_lurd(text)


@given(st.text(max_size=200))
def test_arbitrary_text_is_parsed_or_refused(text):
    with suppress(InvalidLevel):
        assert set(parse_lurd(text)) <= {0, 1, 2, 3}


@given(st.lists(st.integers(0, 3), max_size=60))
def test_played_actions_and_their_text_lead_to_the_same_position(actions):
    state = ROOM
    for action in actions:
        state = push(state, action)
    lurd = to_lurd(ROOM, actions)
    assert play_lurd(ROOM, lurd) == state
    assert to_lurd(ROOM, parse_lurd(lurd)) == lurd


@pytest.mark.parametrize(
    ("lurd", "message"),
    [("l", "letter 1: wanted a way"), ("rd", "letter 2: wanted a move"), ("R", "letter 1: wanted a push")],
)
def test_a_letter_that_is_wrong_for_the_position_is_named(lurd, message):
    with pytest.raises(InvalidLevel, match=message):
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


def test_a_walk_through_a_wall_is_refused():
    with pytest.raises(ValueError, match="reach"):
        walk_to(ROOM, 0)


def test_pushes_in_a_given_order_are_joined_by_shortest_walks():
    boards = [play_lurd(ROOM, "rD").boxes, play_lurd(ROOM, "rDurrrldD").boxes]
    assert lurd_of_boards(ROOM, boards) == "rDrrD"
