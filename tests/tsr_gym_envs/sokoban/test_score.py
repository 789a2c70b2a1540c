"""Potentials: a lower bound that proves what it calls lost, and the exact distance."""

import pytest
from hypothesis import given

from tests.tsr_gym_envs.sokoban.boards import boards, fewest_moves, state_of
from tsr_gym_envs.sokoban import oracle
from tsr_gym_envs.sokoban.score import DEADLOCKED, POTENTIALS, estimated_potential, exact_potential, next_push_potential


@given(boards(max_side=4, max_boxes=2))
def test_the_estimate_never_promises_less_than_is_needed_nothing_is_lost_that_can_be_solved(rows):
    moves = fewest_moves(rows)
    estimate = estimated_potential(state_of(rows))
    if moves is None:
        assert estimate <= 0.0
    else:
        assert -moves <= estimate <= 0.0


@given(boards(max_side=4, max_boxes=2))
def test_by_the_next_push_a_room_is_never_nearer_than_by_the_estimate_and_only_lost_ones_are_lost(rows):
    moves, state = fewest_moves(rows), state_of(rows)
    assert next_push_potential(state) <= estimated_potential(state)
    assert moves is None or next_push_potential(state) > -DEADLOCKED
    assert (next_push_potential(state) == 0.0) == state.solved


@given(boards(max_side=4, max_boxes=2))
def test_the_exact_potential_is_minus_the_moves_that_are_left(rows):
    moves = fewest_moves(rows)
    assert exact_potential(state_of(rows)) == (-DEADLOCKED if moves is None else -moves)


def test_on_golden_positions_the_estimate_is_a_bound_and_its_verdicts_are_true(golden):
    lost = 0
    for row in golden("sokoban/sokoban_states.jsonl")[::2]:
        estimate = estimated_potential(state_of(row["rows"]))
        if estimate == -DEADLOCKED:
            assert not row["solvable"], row["id"]
            lost += 1
        elif row["solvable"]:
            assert estimate >= -row["min_moves"], row["id"]
    assert lost > 200


@pytest.mark.parametrize(
    ("rows", "estimate"),
    [
        (["#######", "#@ $ .#", "#######"], -3.0),  # two pushes, one step to stand beside the box
        (["#######", "#  @$.#", "#######"], -1.0),
        (["######", "#@ * #", "######"], 0.0),
        (["######", "#$ .@#", "######"], -DEADLOCKED),
        (["#######", "#     #", "#@$ $.#", "# .   #", "#######"], -2.0),  # a push each by the best matching
        (["#######", "#@$ $.#", "#     #", "# .   #", "#######"], -DEADLOCKED),  # both boxes stay in the top row
    ],
)
def test_estimates_of_small_rooms_are_those_worked_out_by_hand(rows, estimate):
    assert estimated_potential(state_of(rows)) == estimate


@pytest.mark.parametrize(
    ("rows", "potential"),
    [
        (["#######", "#@ $ .#", "#######"], -3.0),  # one step, then two pushes
        (["#######", "#     #", "# .$ @#", "#     #", "#######"], -2.0),
        (["#######", "#     #", "#@ $. #", "#     #", "#######"], -2.0),
        # The player stands on the wrong side: four steps round the box, then two pushes to the right.
        (["#######", "#     #", "#  $@.#", "#     #", "#######"], -6.0),
        (["######", "#@ * #", "######"], 0.0),
        (["######", "#$ .@#", "######"], -DEADLOCKED),
        # Nobody gets behind the box.
        (["######", "#@#$.#", "######"], -DEADLOCKED),
    ],
)
def test_potentials_by_the_next_push_are_those_worked_out_by_hand(rows, potential):
    assert next_push_potential(state_of(rows)) == potential


def test_a_board_that_is_too_large_has_no_exact_potential():
    state = state_of(["#" * 14, *["#" + " " * 12 + "#"] * 3, "#@$$$....$   #", "#" * 14])
    assert oracle.distance_table(state.level) is None
    with pytest.raises(ValueError, match=r"too large|at most"):
        exact_potential(state)


def test_every_potential_can_be_chosen_by_name():
    assert set(POTENTIALS) == {"estimate", "next_push", "oracle"}
