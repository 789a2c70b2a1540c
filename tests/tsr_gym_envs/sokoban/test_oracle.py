"""The oracle of small boards against forward search, another program's labels, and enumeration."""

from itertools import product

import pytest
from hypothesis import assume, given

from tests.tsr_gym_envs.sokoban.boards import NAMES, boards, fewest_moves, move, solved, state_of
from tsr_gym_envs.sokoban import oracle
from tsr_gym_envs.sokoban.rules import cells, push


@given(boards(max_side=4, max_boxes=2))
def test_distances_are_those_of_a_forward_search(rows):
    assert oracle.distance(state_of(rows)) == fewest_moves(rows)


def test_distances_are_the_golden_ones(golden):
    compared = 0
    for row in golden("sokoban/sokoban_states.jsonl")[::8]:
        state = state_of(row["rows"])
        if oracle.num_positions(state.level) < 40_000:
            assert oracle.distance(state) == row["min_moves"], row["id"]
            compared += 1
    assert compared > 100


def test_distances_of_handmade_boards_are_the_golden_ones(golden):
    for row in golden("sokoban/sokoban_handmade.jsonl"):
        state = state_of(row["rows"])
        if oracle.num_positions(state.level) < 100_000:
            assert oracle.distance(state) == row["min_moves"], row["note"]


@pytest.mark.parametrize("name", ["gym_sokoban_6x6_1box_rooms", "sokoban_ragen_val256"])
def test_distance_and_random_success_of_the_originals_rooms_are_the_golden_ones(golden, name):
    for row in golden(f"sokoban/{name}.jsonl")[::3]:
        state = state_of(row["rows"])
        assert oracle.distance(state) == row["min_moves"]
        assert oracle.random_success(state, 10) == pytest.approx(row["p_random10"], abs=1e-12)


@given(boards(max_side=3, max_boxes=2))
def test_random_success_is_the_share_of_all_sequences_that_solve(rows):
    assume(not solved(rows))
    wins = 0
    for sequence in product(NAMES, repeat=4):
        here = rows
        for name in sequence:
            here = move(here, name)
            if solved(here):
                wins += 1
                break
    assert oracle.random_success(state_of(rows), 4) == pytest.approx(wins / 4**4, abs=1e-12)


@given(boards(max_side=4, max_boxes=2))
def test_a_shortest_solution_solves_in_as_many_moves_as_the_distance_says(rows):
    state = state_of(rows)
    plan = oracle.shortest_solution(state)
    moves = fewest_moves(rows)
    assert (None if plan is None else len(plan)) == moves
    for action in plan or []:
        state = push(state, action)
    assert plan is None or state.solved


def test_positions_are_counted_as_box_placements_times_player_cells():
    # Seven floor cells and two boxes: 21 placements, five cells left for the player.
    state = state_of(["#######", "#@$$..#", "# #####", "# #####", "#######"])
    assert oracle.num_positions(state.level) == 21 * 5


def test_a_board_that_is_too_large_is_refused_and_not_guessed():
    state = state_of(["#" * 14, *["#" + " " * 12 + "#"] * 3, "#@$$$....$   #", "#" * 14])
    assert oracle.distance_table(state.level) is None
    with pytest.raises(ValueError, match=r"at most 200000 positions, got \d+"):
        oracle.distance(state)


def test_a_search_with_limits_lists_whole_layers_with_exact_distances():
    level = state_of(["######", "#    #", "# $@ #", "# .  #", "######"]).level
    whole = oracle.retrograde(level, max_moves=None, max_states=10**6)
    near = oracle.retrograde(level, max_moves=3, max_states=10**6)
    assert near == {position: moves for position, moves in whole.items() if moves <= 3}
    few = oracle.retrograde(level, max_moves=None, max_states=40)
    assert len(few) <= 40
    deepest = max(few.values())
    assert few == {position: moves for position, moves in whole.items() if moves <= deepest}


def test_a_solved_position_is_no_moves_away_wherever_the_player_stands():
    state = state_of(["#####", "#@* #", "#   #", "#####"])
    for cell in cells(~state.level.walls & ~state.boxes & ((1 << 20) - 1)):
        if cell not in cells(state.level.goals):
            assert oracle.distance(state._replace(player=cell)) == 0
