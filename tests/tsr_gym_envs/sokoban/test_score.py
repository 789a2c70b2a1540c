"""Tables of distances, bounds, potentials and plans, compared with exhaustive search."""

from functools import cache
from itertools import permutations, product

import gymnasium as gym
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tsr_gym  # noqa: F401 (registers the worlds)
from tests.tsr_gym_envs.sokoban.boards import NAMES, boards, fewest_moves, move, solved, state_of
from tsr_gym.errors import MissingExtra
from tsr_gym.state_env import NO_NOISE
from tsr_gym_envs.sokoban import plan, score
from tsr_gym_envs.sokoban.levels import parse_level
from tsr_gym_envs.sokoban.plan import best_value, dead_end, shortest_plan
from tsr_gym_envs.sokoban.rules import ACTIONS, cells, push
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


def test_distances_are_the_golden_ones(golden):
    compared = 0
    for row in golden("sokoban/sokoban_states.jsonl")[::8]:
        state = state_of(row["rows"])
        if score.num_positions(state.level) < 40_000:
            assert score.distance(state) == row["min_moves"], row["id"]
            compared += 1
    assert compared > 100
    for row in golden("sokoban/sokoban_handmade.jsonl"):
        state = state_of(row["rows"])
        if score.num_positions(state.level) < 100_000:
            assert score.distance(state) == row["min_moves"], row["note"]


@pytest.mark.parametrize("name", ["gym_sokoban_6x6_1box_rooms", "sokoban_ragen_val256"])
def test_distance_and_random_success_of_the_originals_rooms_are_the_golden_ones(golden, name):
    for row in golden(f"sokoban/{name}.jsonl")[::3]:
        state = state_of(row["rows"])
        assert score.distance(state) == row["min_moves"]
        assert score.random_success(state, 10) == pytest.approx(row["p_random10"], abs=1e-12)


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
    assert score.random_success(state_of(rows), 4) == pytest.approx(wins / 4**4, abs=1e-12)


@given(boards(max_side=4, max_boxes=2))
def test_distances_solutions_bounds_and_potentials_agree_with_a_forward_search(rows):
    moves, state = fewest_moves(rows), state_of(rows)
    bound, estimate, by_next_push = score.fewest_moves(state), estimated_potential(state), next_push_potential(state)
    assert moves is None or (bound is not None and bound <= moves)
    # The estimate never promises less than is needed, and nothing is lost that can be solved.
    assert estimate <= 0.0
    assert moves is None or -moves <= estimate
    assert by_next_push <= estimate
    assert moves is None or by_next_push > -DEADLOCKED
    assert (by_next_push == 0.0) == state.solved
    assert exact_potential(state) == (-DEADLOCKED if moves is None else -moves)
    assert score.distance(state) == moves
    solution = score.shortest_solution(state)
    assert (solution and len(solution)) == moves or state.solved
    assert solution is None or played(state, solution).solved


def test_positions_are_counted_and_too_many_refused():
    # Seven floor cells and two boxes: 21 placements, five cells left for the player.
    state = state_of(["#######", "#@$$..#", "# #####", "# #####", "#######"])
    assert score.num_positions(state.level) == 21 * 5
    state = state_of(["#" * 14, *["#" + " " * 12 + "#"] * 3, "#@$$$....$   #", "#" * 14])
    assert score.distance_table(state.level) is None
    for ask in (score.distance, exact_potential):
        with pytest.raises(ValueError, match=r"at most 200000 positions, got \d+"):
            ask(state)
    assert set(POTENTIALS) == {"estimate", "next_push", "oracle"}


def test_a_search_with_limits_lists_whole_layers_with_exact_distances():
    level = state_of(["######", "#    #", "# $@ #", "# .  #", "######"]).level
    whole = score.retrograde(level, max_moves=None, max_states=10**6)
    near = score.retrograde(level, max_moves=3, max_states=10**6)
    assert near == {position: moves for position, moves in whole.items() if moves <= 3}
    few = score.retrograde(level, max_moves=None, max_states=40)
    assert len(few) <= 40
    deepest = max(few.values())
    assert few == {position: moves for position, moves in whole.items() if moves <= deepest}


SMALL = "######\n#@ $.#\n######"
LARGE = "\n".join(
    ["#" * 14, "#@" + " " * 11 + "#", *["#" + " " * 12 + "#"] * 8, "# $$ $$  .. .#", "#          . #", "#" * 14]
)
STUCK = LARGE.replace("#@" + " " * 11 + "#", "#$@" + " " * 9 + ".#")


def played(state, actions):
    for action in actions:
        state = push(state, action)
    return state


def test_a_plan_solves_the_level_in_the_fewest_moves_or_has_a_reason():
    assert shortest_plan(parse_level(SMALL)) == [3, 3]
    for text in (SMALL, LARGE):
        state = parse_level(text)
        assert played(state, shortest_plan(state)).solved
        assert dead_end(state) is None
    for text in ("#####\n#$@.#\n#####", STUCK):
        state = parse_level(text)
        assert shortest_plan(state) is None
        assert dead_end(state) == "dead square"


def test_without_the_extra_small_boards_are_known_and_large_ones_ask_for_it(monkeypatch):
    def missing(package, extra):
        raise MissingExtra(package, extra)

    monkeypatch.setattr(plan, "require", missing)
    assert shortest_plan(parse_level(SMALL)) == [3, 3]
    assert dead_end(parse_level("#####\n#$@.#\n#####")) == "table"
    for ask in (shortest_plan, dead_end):
        with pytest.raises(MissingExtra, match="envs"):
            ask(parse_level(LARGE))
    monkeypatch.setattr(plan, "distance_table", lambda level: None)
    with pytest.raises(MissingExtra, match="envs"):
        best_value(parse_level(SMALL), 5)
    # What is solved or plainly lost needs nothing.
    assert best_value(parse_level(CORNER), 5) == 0.0


CORNER = "######\n#$ @.#\n######"


@settings(max_examples=40)
@given(rows=boards(max_side=3, max_boxes=2), most=st.none() | st.integers(0, 8))
def test_a_position_is_worth_one_where_its_shortest_solution_fits_by_table_and_by_bound_and_solver(rows, most):
    moves, state = fewest_moves(rows), state_of(rows)
    expected = float(moves is not None and (most is None or moves <= most))
    assert best_value(state, most) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "distance_table", lambda level: None)
        assert best_value(state, most) == expected


def test_a_solver_that_gives_up_leaves_the_value_open_and_long_solutions_are_no_deadlock(monkeypatch):
    monkeypatch.setattr(plan, "distance_table", lambda level: None)
    state = parse_level("#######\n#@    #\n# $$  #\n#   ..#\n#######")
    assert best_value(state, None) == 1.0
    assert best_value(state, None, max_nodes=1) is None
    # A bound needs no search.
    assert best_value(state, 1, max_nodes=1) == 0.0
    corridor = parse_level("#" * 60 + "\n#@$" + " " * 55 + ".#\n" + "#" * 60)
    assert (best_value(corridor, 56), best_value(corridor, 55)) == (1.0, 0.0)


def by_trying(env, state, turns_left, actions_left):
    """Return whether some turns of the environment solve a position, each tried with every sequence of actions."""

    @cache
    def can(state, turns, actions):
        if env.is_success(state):
            return True
        if turns == 0 or actions == 0:
            return False
        for length in range(1, min(env.limits.max_actions_per_turn, actions) + 1):
            for names in product(ACTIONS, repeat=length):
                after = state
                for name in names:
                    # A turn ends where the room is solved.
                    after = after if env.is_success(after) else env.transition(after, name, NO_NOISE).state
                if can(after, turns - 1, actions - length):
                    return True
        return False

    return float(can(state, turns_left, actions_left))


def test_the_environment_counts_turns_and_actions():
    limits = {"max_turns": 3, "max_actions_per_turn": 2, "max_actions": 5}
    env = gym.make("tsr/Sokoban-v0", **limits).unwrapped
    seen = set()
    for seed in range(12):
        env.reset(seed=seed)
        for turns, actions in ((3, 5), (2, 3), (1, 2), (3, 1), (0, 5), (1, 5)):
            expected = by_trying(env, env.state, turns, actions)
            assert env.best_value(env.state, turns, actions) == expected, (seed, turns, actions)
            seen.add(expected)
    assert seen == {0.0, 1.0}
    # What is solved stays won, and what is lost stays lost.
    env.reset(options={"level": SMALL})
    env.step("Right || Right")
    assert env.best_value(env.state, 0, 0) == 1.0
    env.reset(options={"level": CORNER})
    assert env.best_value(env.state, None, None) == 0.0
