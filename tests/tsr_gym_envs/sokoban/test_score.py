"""Lower bounds against brute force over matchings, pushes and moves; potentials against the exact distance."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym_envs.sokoban.boards import boards, fewest_moves, state_of
from tsr_gym_envs.sokoban import score
from tsr_gym_envs.sokoban.levels import parse_level
from tsr_gym_envs.sokoban.rules import cells
from tsr_gym_envs.sokoban.score import (
    DEADLOCKED,
    POTENTIALS,
    assignment_cost,
    estimated_potential,
    exact_potential,
    fewest_pushes,
    next_push_potential,
    push_distances,
)


@given(
    st.integers(1, 5).flatmap(
        lambda size: st.lists(st.lists(st.integers(0, 20), min_size=size, max_size=size), min_size=size, max_size=size)
    )
)
def test_the_cheapest_assignment_is_what_trying_all_finds(costs):
    size = len(costs)
    expected = min(sum(costs[row][order[row]] for row in range(size)) for order in permutations(range(size)))
    assert assignment_cost(costs) == expected


def lone_box_pushes(rows, goal):
    """Return, per cell, the fewest pushes of a lone box to a goal; the player stands wherever it is needed."""
    height, width = len(rows), len(rows[0])
    free = {(r, c) for r in range(height) for c in range(width) if rows[r][c] != "#"}
    best = {place: 0 if place == goal else None for place in free}
    for _ in range(len(free)):
        for row, column in free:
            for down, right in ((0, 1), (0, -1), (1, 0), (-1, 0)):
                there, player = (row + down, column + right), (row - down, column - right)
                if there in free and player in free and best[there] is not None:
                    pushes = best[there] + 1
                    if best[row, column] is None or pushes < best[row, column]:
                        best[row, column] = pushes
    return {place[0] * width + place[1]: pushes for place, pushes in best.items() if pushes is not None}


@given(boards(max_side=5))
def test_push_distances_are_those_of_a_box_alone_on_the_board(rows):
    level = state_of(rows).level
    expected = tuple(lone_box_pushes(rows, divmod(goal, len(rows[0]))) for goal in cells(level.goals))
    assert push_distances(level) == expected


@given(boards(max_side=5))
def test_the_bound_is_the_cheapest_matching_and_none_where_there_is_none(rows):
    state = state_of(rows)
    reach = [lone_box_pushes(rows, divmod(goal, len(rows[0]))) for goal in cells(state.level.goals)]
    totals = [
        sum(reach[goal][box] for goal, box in enumerate(order))
        for order in permutations(cells(state.boxes))
        if all(box in reach[goal] for goal, box in enumerate(order))
    ]
    assert fewest_pushes(state.level, state.boxes) == (min(totals) if totals else None)


def test_the_bound_is_at_most_the_golden_pushes_and_proves_only_what_is_unsolvable(golden):
    for row in golden("sokoban/sokoban_states.jsonl")[::3]:
        state = state_of(row["rows"])
        bound = fewest_pushes(state.level, state.boxes)
        if bound is None:
            assert not row["solvable"], row["id"]
        elif row["solvable"]:
            assert bound <= row["min_pushes"], row["id"]


def test_boxoban_levels_have_the_golden_bound_at_their_start(golden):
    for row in golden("sokoban/boxoban_labelled.jsonl")[::4]:
        state = state_of(row["rows"])
        assert fewest_pushes(state.level, state.boxes) == row["h0"]


@given(boards())
def test_no_board_is_solved_in_fewer_moves(rows):
    bound, moves = score.fewest_moves(state_of(rows)), fewest_moves(rows)
    assert moves is None or (bound is not None and bound <= moves)


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        # Two pushes, and one field between player and box.
        ("#######\n#@ $ .#\n#######", 3),
        ("#######\n#  @$.#\n#######", 1),
        ("#####\n#$@.#\n#####", None),
        ("#####\n#@ *#\n#####", 0),
        # The near box stands on a goal already, and may have to move first.
        ("########\n#@*  $.#\n########", 1),
    ],
)
def test_the_bound_by_hand(text, moves):
    assert score.fewest_moves(parse_level(text)) == moves


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
        (["#######", "#@ $ .#", "#######"], -3.0),  # two pushes, one step to stand next to the box
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
        # The player cannot reach the cell behind the box.
        (["######", "#@#$.#", "######"], -DEADLOCKED),
    ],
)
def test_potentials_by_the_next_push_are_those_worked_out_by_hand(rows, potential):
    assert next_push_potential(state_of(rows)) == potential


def test_a_board_that_is_too_large_has_no_exact_potential():
    state = state_of(["#" * 14, *["#" + " " * 12 + "#"] * 3, "#@$$$....$   #", "#" * 14])
    assert score.distance_table(state.level) is None
    with pytest.raises(ValueError, match=r"too large|at most"):
        exact_potential(state)


def test_every_potential_can_be_chosen_by_name():
    assert set(POTENTIALS) == {"estimate", "next_push", "oracle"}
