"""Boxes matched to goals, against brute force over all matchings and over all pushes of a lone box."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym_envs.sokoban.boards import boards, state_of
from tsr_gym_envs.sokoban.matching import assignment_cost, fewest_pushes, push_distances
from tsr_gym_envs.sokoban.rules import cells


@given(
    st.integers(1, 5).flatmap(
        lambda size: st.lists(st.lists(st.integers(0, 20), min_size=size, max_size=size), min_size=size, max_size=size)
    )
)
def test_the_cheapest_assignment_is_what_trying_all_finds(costs):
    size = len(costs)
    wanted = min(sum(costs[row][order[row]] for row in range(size)) for order in permutations(range(size)))
    assert assignment_cost(costs) == wanted


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
    wanted = tuple(lone_box_pushes(rows, divmod(goal, len(rows[0]))) for goal in cells(level.goals))
    assert push_distances(level) == wanted


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
