"""Deadlock proofs against exhaustive tables, labelled positions, and what must hold of any proof."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tsr_gym import InvalidLevel
from tsr_gym_envs.sokoban.levels import parse_level
from tsr_gym_envs.sokoban.rules import Level, SokobanState, cells, push, reachable
from tsr_gym_envs.sokoban.score import retrograde
from tsr_gym_envs.sokoban.solver import Deadlock, find_deadlock, solve
from tsr_gym_envs.tiles import symmetries

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden" / "sokoban"


def golden(name):
    if not GOLDEN.is_dir():
        pytest.skip(f"the golden cases are not there: wanted the folder {GOLDEN}")
    rows = [json.loads(line) for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines()]
    return [(row, parse_level("\n".join(row["rows"]))) for row in rows]


def random_level(rng, num_boxes):
    """A board of up to 5x5 cells with walls at random places."""
    height, width = rng.integers(3, 6, 2) + 2
    inside = [row * width + column for row in range(1, height - 1) for column in range(1, width - 1)]
    floor = rng.permutation(inside)[: rng.integers(len(inside) * 2 // 3, len(inside) + 1)].tolist()
    goals = sum(1 << cell for cell in floor[:num_boxes])
    walls = (1 << int(height * width)) - 1 & ~sum(1 << cell for cell in floor)
    return Level(int(height), int(width), walls, goals)


def random_positions(rng, level, num):
    free = cells(~level.walls & ((1 << level.height * level.width) - 1))
    for _ in range(num):
        *boxes, player = rng.permutation(free)[: level.goals.bit_count() + 1].tolist()
        yield SokobanState(level, sum(1 << box for box in boxes), player)


def labelled_positions(num_levels, seed):
    """Random positions of random small boards, and whether an exhaustive search backwards from solved meets them."""
    rng = np.random.default_rng(seed)
    for index in range(num_levels):
        level = random_level(rng, 1 + index % 3)
        table = retrograde(level, max_moves=None, max_states=10**9)
        for state in random_positions(rng, level, 60):
            yield state, (state.boxes, state.player) in table


def check_against_exhaustive_search(num_levels, seed):
    counts = Counter()
    for state, solvable in labelled_positions(num_levels, seed):
        deadlock = find_deadlock(state)
        assert not (solvable and deadlock), f"{deadlock} flags a solvable position\n{state.to_xsb()}"
        counts[solvable, deadlock is not None] += 1
        if not solvable:
            assert find_deadlock(state, search_nodes=10_000) is not None, state.to_xsb()
    assert counts[False, True] > 0.97 * (counts[False, True] + counts[False, False])
    assert counts[True, False] > 100


def test_nothing_solvable_is_flagged_and_search_flags_the_rest_on_random_boards():
    check_against_exhaustive_search(num_levels=60, seed=1)


@pytest.mark.deep
def test_nothing_solvable_is_flagged_and_search_flags_the_rest_on_many_random_boards():
    check_against_exhaustive_search(num_levels=20_000, seed=2)


def test_every_rule_is_the_first_to_find_something_on_random_boards():
    rules = Counter(deadlock.rule for state, _ in labelled_positions(60, 3) if (deadlock := find_deadlock(state)))
    assert set(rules) == {"dead square", "player side", "freeze", "matching", "pair"}


def test_labelled_states_of_every_stratum_are_classified():
    missed, counts = Counter(), Counter()
    for row, state in golden("sokoban_states.jsonl"):
        deadlock = find_deadlock(state)
        assert not (row["solvable"] and deadlock), f"{row['id']}: {deadlock}"
        counts[row["stratum"]] += 1
        missed[row["stratum"]] += not row["solvable"] and deadlock is None
    assert {stratum for stratum in missed if missed[stratum]} <= {"U8_needs_all_boxes"}
    unsolvable = sum(counts[stratum] for stratum in counts if stratum.startswith("U"))
    assert missed.total() <= 0.06 * unsolvable


@pytest.mark.parametrize("name", ["sokoban_states.jsonl", "sokoban_handmade.jsonl", "boxoban_play_states.jsonl"])
def test_with_search_exactly_the_unsolvable_states_are_flagged(name):
    for row, state in golden(name):
        assert (find_deadlock(state, search_nodes=50_000) is None) == row["solvable"], row


def test_rules_find_what_the_strongest_rule_of_the_labels_found_after_random_play():
    for row, state in golden("boxoban_play_states.jsonl"):
        if "pair_player" in row["caught_by"] or "bip_frozen" in row["caught_by"]:
            assert find_deadlock(state) is not None, row


def test_no_position_on_an_optimal_path_is_flagged():
    for _, state in golden("boxoban_labelled.jsonl")[::8]:
        for letter in solve(state).lurd:
            state = push(state, "udlr".index(letter.lower()))
            assert find_deadlock(state) is None
        assert state.solved


def check_positions_on_the_way_back_from_solved(num_levels, num_steps):
    rng = np.random.default_rng(7)
    for _, start in golden("boxoban_labelled.jsonl")[:num_levels]:
        level = start.level
        boxes, player = level.goals, int(rng.choice(cells(~level.walls & ~level.goals & ((1 << 100) - 1))))
        for offset in rng.choice(level.offsets, num_steps).tolist():
            origin, ahead = player - offset, 1 << (player + offset)
            if not (level.walls | boxes) >> origin & 1:
                if boxes & ahead:
                    boxes ^= ahead | 1 << player
                player = origin
                assert find_deadlock(SokobanState(level, boxes, player)) is None


def test_no_position_on_the_way_back_from_solved_is_flagged():
    check_positions_on_the_way_back_from_solved(num_levels=50, num_steps=200)


@pytest.mark.deep
def test_no_position_on_a_long_way_back_from_solved_is_flagged():
    check_positions_on_the_way_back_from_solved(num_levels=204, num_steps=3000)


def test_every_successor_of_a_flagged_position_is_unsolvable_too():
    for state, _ in labelled_positions(30, 4):
        if find_deadlock(state):
            for action in range(4):
                assert find_deadlock(push(state, action), search_nodes=10_000), state.to_xsb()


def test_the_verdict_does_not_change_as_the_player_walks_about():
    for state, _ in labelled_positions(20, 5):
        verdicts = {find_deadlock(state._replace(player=cell)) for cell in cells(reachable(state))}
        assert len(verdicts) == 1, state.to_xsb()


def test_the_verdict_is_the_same_for_all_symmetries_and_inside_more_walls():
    for state, _ in labelled_positions(20, 6):
        rows = tuple(state.to_xsb().split("\n"))
        wall = "#" * (len(rows[0]) + 2)
        views = [*symmetries(rows), (wall, *(f"#{row}#" for row in rows), wall)]
        assert {find_deadlock(parse_level("\n".join(view))) for view in views} == {find_deadlock(state)}


@pytest.mark.parametrize(
    ("board", "rule"),
    [
        ("######\n#$ @ #\n#  . #\n######", "dead square"),
        ("#######\n#@.$  #\n#######", "player side"),
        ("#######\n# *$  #\n#  @  #\n#    .#\n#######", "freeze"),
        ("#######\n#.$$@ #\n#    .#\n#######", "freeze"),
        ("#######\n#.$@$ #\n#     #\n#   . #\n#######", "matching"),
        ("#######\n#     #\n# *** #\n#  @  #\n#######", None),
        ("########\n#@  #  #\n# $.# *#\n#   #  #\n########", None),
        ("#####\n#* *#\n# @ #\n#* *#\n#####", None),
    ],
)
def test_well_known_cases(board, rule):
    assert find_deadlock(parse_level(board)) == (rule and Deadlock(rule, proved=True))


def test_boxes_frozen_on_goals_count_as_walls():
    # The two boxes on goals hold each other and shut the third goal off; any two of the boxes alone could be solved.
    state = parse_level("#######\n#.**  #\n##    #\n#  $  #\n#   @ #\n#######")
    assert find_deadlock(state) is not None
    assert (state.boxes, state.player) not in retrograde(state.level, max_moves=None, max_states=10**6)


def test_positions_that_break_the_rules_of_levels_are_refused_and_not_walked_out_of():
    with pytest.raises(InvalidLevel, match="rim"):
        find_deadlock(SokobanState(Level(3, 3, 0, 1 << 4), 1 << 3, 5))
    state = parse_level("#####\n#@$.#\n#####")
    with pytest.raises(InvalidLevel, match="as many boxes as goals"):
        find_deadlock(state._replace(boxes=0))


def test_without_numba_the_pip_line_is_named():
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import tsr_gym_envs.sokoban.env, tsr_gym_envs.sokoban.score\n"
        "from tsr_gym_envs.sokoban.rooms import generate_room\n"
        "generate_room(0)\n"
        "from tsr_gym import MissingExtra\n"
        "calls = lambda: __import__('tsr_gym_envs.sokoban.solver'), lambda: generate_room(0, generator='ragen')\n"
        "for call in calls:\n"
        "    try: call()\n"
        "    except MissingExtra as error: assert \"pip install 'tsr-gym[envs]'\" in str(error)\n"
        "    else: raise SystemExit('no MissingExtra')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).resolve().parents[3])
