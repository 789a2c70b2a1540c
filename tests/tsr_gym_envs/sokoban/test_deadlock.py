"""Deadlock rules, and the compiled kernels below them."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest

from tests.conftest import deep, run_python
from tests.tsr_gym_envs.sokoban.boards import labelled
from tsr_gym import InvalidLevel
from tsr_gym_envs.compiled import numpy_below, python_below, python_random, python_twister, seed_by_number
from tsr_gym_envs.sokoban.deadlock import freeze, keep_corral_pushes, unpacked
from tsr_gym_envs.sokoban.levels import parse_level
from tsr_gym_envs.sokoban.rules import Level, SokobanState, cells, push, reachable
from tsr_gym_envs.sokoban.score import retrograde
from tsr_gym_envs.sokoban.solver import Deadlock, find_deadlock, list_pushes, solve
from tsr_gym_envs.sokoban.tables import APART, UNREACHABLE, board_flags, flood, level_tables, match_boxes, rematch_box
from tsr_gym_envs.tiles import symmetries

STEPS = range(4)


def random_levels(seed, num, num_boxes=2):
    """Boards of up to 4x5 cells with walls at random places."""
    rng = np.random.default_rng(seed)
    for _ in range(num):
        height, width = int(rng.integers(3, 5)) + 2, int(rng.integers(3, 6)) + 2
        inside = [row * width + column for row in range(1, height - 1) for column in range(1, width - 1)]
        floor = rng.permutation(inside)[: rng.integers(len(inside) * 3 // 5, len(inside) + 1)].tolist()
        walls = ((1 << height * width) - 1) & ~sum(1 << cell for cell in floor)
        yield Level(height, width, walls, sum(1 << cell for cell in floor[:num_boxes])), rng


def floor_of(level):
    return cells(~level.walls & ((1 << level.height * level.width) - 1))


def area_of(level, boxes, player):
    return reachable(SokobanState(level, sum(1 << box for box in boxes), player))


def lone_table(level, num_boxes):
    """Pushes to solved of positions with some boxes and as many of the goals, by pushing on from each position.

    A position is its boxes and all cells that the player can walk to.
    """
    free, goals = floor_of(level), set(cells(level.goals))
    positions = {
        (boxes, area_of(level, boxes, player))
        for boxes in itertools.combinations(free, num_boxes)
        for player in free
        if player not in boxes
    }
    pushes = {position: 0 for position in positions if set(position[0]) <= goals}
    grown = True
    while grown:
        grown = False
        for boxes, area in positions:
            for box, step in itertools.product(boxes, level.offsets):
                target = box + step
                if not area >> (box - step) & 1 or target not in free or target in boxes:
                    continue
                after = tuple(sorted({*boxes, target} - {box}))
                left = pushes.get((after, area_of(level, after, box)), UNREACHABLE) + 1
                if left < pushes.get((boxes, area), UNREACHABLE):
                    pushes[boxes, area] = left
                    grown = True
    return pushes


def test_a_flood_measures_the_walk_to_every_cell_in_reach():
    for level, rng in random_levels(1, 30):
        free = floor_of(level)
        box, start = rng.permutation(free)[:2].tolist()
        blocked, step = board_flags(level, level.walls | 1 << box), np.array(level.offsets)
        seen, queue = np.zeros(blocked.size, np.int64), np.empty(blocked.size, np.int64)
        size = flood(blocked, step, start, seen, 7, queue)
        walk, layer = {start: 0}, [start]
        while layer:
            layer = [c + s for c in layer for s in level.offsets if c + s in free and c + s != box]
            layer = [cell for cell in dict.fromkeys(layer) if cell not in walk]
            walk |= {cell: 1 + max(walk.values()) for cell in layer}
        assert {cell: seen[cell] - 7 for cell in queue[:size].tolist()} == walk
        assert (seen >= 7).sum() == size


def test_player_sides_tell_apart_just_the_areas_around_a_box():
    for level, _ in random_levels(2, 30):
        side = level_tables(level).side
        for box, player in itertools.permutations(floor_of(level), 2):
            area = area_of(level, [box], player)
            touching = [step for step in STEPS if area >> (box + level.offsets[step]) & 1]
            assert side[box, player] == (touching[0] if touching else APART)


def test_lone_distances_and_dead_sides_are_those_of_all_positions_of_one_box():
    for level, _ in random_levels(3, 20):
        tables = level_tables(level)
        for number, goal in enumerate(cells(level.goals)):
            pushes = lone_table(Level(level.height, level.width, level.walls, 1 << goal), 1)
            for box, player in itertools.permutations(floor_of(level), 2):
                expected = pushes.get(((box,), area_of(level, [box], player)), UNREACHABLE)
                assert tables.distance[box, tables.side[box, player], number] == expected
        any_goal = lone_table(level, 1)
        for box, step in itertools.product(floor_of(level), STEPS):
            player = box + level.offsets[step]
            if not level.walls >> player & 1:
                assert tables.dead[box, step] == (((box,), area_of(level, [box], player)) not in any_goal)


def test_live_pairs_are_those_of_all_positions_of_two_boxes():
    for level, _ in random_levels(4, 6, num_boxes=3):
        pairs = level_tables(level).pairs
        pushes = lone_table(level, 2)
        for box, other in itertools.permutations(floor_of(level), 2):
            for step in STEPS:
                player = box + level.offsets[step]
                if player != other and not level.walls >> player & 1:
                    position = (tuple(sorted((box, other))), area_of(level, (box, other), player))
                    assert (pairs[box, step, other] > 0) == (position in pushes)


@pytest.mark.parametrize("num", [1, 2, 3, 5])
def test_matchings_are_the_cheapest_of_all_permutations_also_when_mended(num):
    rng = np.random.default_rng(num)
    for _ in range(60):
        size = 12
        distance = rng.integers(0, 20, (size, 5, num)).astype(np.int32)
        distance[rng.random(distance.shape) < 0.3] = UNREACHABLE
        side = np.zeros((size, size), np.uint8)
        boxes = rng.permutation(size)[:num].astype(np.int32)
        plan, scratch = np.empty((3, num + 1), np.int64), np.empty((3, num + 1), np.int64)

        def cheapest(boxes=boxes, distance=distance):
            ways = itertools.permutations(range(num))
            return min(sum(int(distance[box, 0, goal]) for box, goal in zip(boxes, way, strict=True)) for way in ways)

        assert match_boxes(boxes, 0, side, distance, plan, scratch) == cheapest()
        for _ in range(3):
            moved = int(rng.integers(num))
            boxes[moved] = rng.integers(size)
            assert rematch_box(moved, boxes, 0, side, distance, plan, scratch) == cheapest()


def test_frozen_boxes_are_the_largest_set_that_holds_itself():
    for level, rng in random_levels(5, 60, num_boxes=4):
        tables = level_tables(level)
        boxes = rng.permutation(floor_of(level))[: int(rng.integers(1, 7))].astype(np.int32)
        blocked = tables.walls.copy()
        blocked[boxes] = True
        order = boxes.copy()
        frozen = set(order[: freeze(order, blocked, tables.step, tables.dead)].tolist())

        def is_held(box, others, level=level, dead=tables.dead):
            solid = level.walls | sum(1 << other for other in others)
            for step in (0, 2):
                ahead, behind = box + level.offsets[step], box - level.offsets[step]
                if (solid >> ahead | solid >> behind) & 1:
                    continue
                if not (dead[ahead, step + 1] and dead[behind, step]):
                    return False
            return True

        sets = [set(some) for size in range(7) for some in itertools.combinations(boxes.tolist(), size)]
        holding = [some for some in sets if all(is_held(box, some) for box in some)]
        assert frozen == max(holding, key=len)
        assert set(np.flatnonzero(blocked)) == {*np.flatnonzero(tables.walls), *frozen}


def test_packed_bitboards_are_unpacked():
    rng = random.Random(1)
    for size in (9, 64, 100, 4096):
        boxes = sorted(rng.sample(range(size), 5))
        packed = np.frombuffer(sum(1 << box for box in boxes).to_bytes((size + 7) // 8, "little"), np.uint8)
        assert unpacked(packed.copy()).tolist() == boxes


def test_corral_pruning_leaves_a_push_of_some_push_optimal_solution():
    num_pruned = 0
    for level, rng in random_levels(6, 60, num_boxes=3):
        tables, table = level_tables(level), lone_table(level, 3)
        for boxes, area in table:
            blocked = tables.walls.copy()
            blocked[list(boxes)] = True
            seen, queue = np.zeros(blocked.size, np.int64), np.empty(blocked.size, np.int64)
            flood(blocked, tables.step, int(rng.choice(cells(area))), seen, 1, queue)
            pushes, where = np.empty(12, np.int32), np.array(boxes, np.int32)
            num = list_pushes(pushes, where, blocked, tables.step, tables.dead, seen, 1)
            kept = keep_corral_pushes(
                pushes, num, where, blocked, tables.walls, tables.goals, tables.step, tables.dead, seen, 1, queue
            )
            num_pruned += kept < num
            left = table[boxes, area]
            after = []
            for code in pushes[:kept].tolist():
                box, step = boxes[code // 4], level.offsets[code % 4]
                moved = tuple(sorted({*boxes, box + step} - {box}))
                after.append(table.get((moved, area_of(level, moved, box)), UNREACHABLE))
            assert left == 0 or min(after) == left - 1
    assert num_pruned > 30


def test_pushes_are_listed_as_the_rules_make_them():
    for level, rng in random_levels(7, 40, num_boxes=2):
        tables, table = level_tables(level), retrograde(level, max_moves=None, max_states=10**9)
        board, player = sorted(table)[int(rng.integers(len(table)))]
        blocked = tables.walls | board_flags(level, board)
        seen, queue = np.zeros(blocked.size, np.int64), np.empty(blocked.size, np.int64)
        flood(blocked, tables.step, player, seen, 1, queue)
        boxes, pushes = np.array(cells(board), np.int32), np.empty(8, np.int32)
        num = list_pushes(pushes, boxes, blocked, tables.step, tables.dead, seen, 1)
        listed = {(boxes[code // 4], code % 4) for code in pushes[:num].tolist()}
        made = set()
        for cell, step in itertools.product(cells(reachable(SokobanState(level, board, player))), STEPS):
            after = push(SokobanState(level, board, cell), step)
            box = cell + level.offsets[step]
            if after.boxes != board and not tables.dead[box + level.offsets[step], step ^ 1]:
                made.add((box, step))
        assert listed == made


def random_positions(rng, level, num):
    free = cells(~level.walls & ((1 << level.height * level.width) - 1))
    for _ in range(num):
        *boxes, player = rng.permutation(free)[: level.goals.bit_count() + 1].tolist()
        yield SokobanState(level, sum(1 << box for box in boxes), player)


def labelled_positions(num_levels, seed):
    """Random positions of random small boards, and whether an exhaustive search backwards from solved meets them."""
    for index in range(num_levels):
        ((level, rng),) = random_levels((seed, index), 1, num_boxes=1 + index % 3)
        table = retrograde(level, max_moves=None, max_states=10**9)
        for state in random_positions(rng, level, 60):
            yield state, (state.boxes, state.player) in table


@pytest.mark.parametrize("seed", [0, 1, 123, 2**32 - 1, 2**64 + 17])
def test_generators_of_python_and_legacy_numpy_draw_as_the_libraries_do(seed):
    original, twister = random.Random(seed), python_twister(seed)
    for index in range(1500):
        limit = 1 + index % 40
        assert python_random(twister) == original.random()
        assert python_below(twister, limit) == original.choice(range(limit))
        assert python_below(twister, 5) == original.sample(range(5), 1)[0]
        assert 1 + python_below(twister, limit) == original.randint(1, limit)
    if seed < 2**32:
        original, twister = np.random.RandomState(seed), seed_by_number(seed)
        for index in range(1500):
            assert numpy_below(twister, 1 + index % 40) == original.randint(1 + index % 40)


@pytest.mark.parametrize(("num_levels", "seed"), [(60, 1), deep(20_000, 2)])
def test_nothing_solvable_is_flagged_and_search_flags_the_rest_on_random_boards(num_levels, seed):
    counts = Counter()
    for state, solvable in labelled_positions(num_levels, seed):
        deadlock = find_deadlock(state)
        assert not (solvable and deadlock), f"{deadlock} flags a solvable position\n{state.to_xsb()}"
        counts[solvable, deadlock is not None] += 1
        if not solvable:
            assert find_deadlock(state, search_nodes=10_000) is not None, state.to_xsb()
    assert counts[False, True] > 0.97 * (counts[False, True] + counts[False, False])
    assert counts[True, False] > 100


def test_every_rule_is_the_first_to_find_something_on_random_boards():
    rules = Counter(deadlock.rule for state, _ in labelled_positions(60, 3) if (deadlock := find_deadlock(state)))
    assert set(rules) == {"dead square", "player side", "freeze", "matching", "pair"}


def test_labelled_states_of_every_stratum_are_classified():
    missed, counts = Counter(), Counter()
    for row, state in labelled("golden/sokoban/sokoban_states.jsonl"):
        deadlock = find_deadlock(state)
        assert not (row["solvable"] and deadlock), f"{row['id']}: {deadlock}"
        counts[row["stratum"]] += 1
        missed[row["stratum"]] += not row["solvable"] and deadlock is None
    assert {stratum for stratum in missed if missed[stratum]} <= {"U8_needs_all_boxes"}
    unsolvable = sum(counts[stratum] for stratum in counts if stratum.startswith("U"))
    assert missed.total() <= 0.06 * unsolvable


@pytest.mark.parametrize("name", ["sokoban_states.jsonl", "sokoban_handmade.jsonl", "boxoban_play_states.jsonl"])
def test_with_search_exactly_the_unsolvable_states_are_flagged(name):
    for row, state in labelled(f"golden/sokoban/{name}"):
        assert (find_deadlock(state, search_nodes=50_000) is None) == row["solvable"], row


def test_rules_find_what_the_strongest_rule_of_the_labels_found_after_random_play():
    for row, state in labelled("golden/sokoban/boxoban_play_states.jsonl"):
        if "pair_player" in row["caught_by"] or "bip_frozen" in row["caught_by"]:
            assert find_deadlock(state) is not None, row


def test_no_position_on_an_optimal_path_is_flagged():
    for _, state in labelled("golden/sokoban/boxoban_labelled.jsonl")[::8]:
        for letter in solve(state).lurd:
            state = push(state, "udlr".index(letter.lower()))
            assert find_deadlock(state) is None
        assert state.solved


@pytest.mark.parametrize(("num_levels", "num_steps"), [(50, 200), deep(204, 3000)])
def test_no_position_on_the_way_back_from_solved_is_flagged(num_levels, num_steps):
    rng = np.random.default_rng(7)
    for _, start in labelled("golden/sokoban/boxoban_labelled.jsonl")[:num_levels]:
        level = start.level
        boxes, player = level.goals, int(rng.choice(cells(~level.walls & ~level.goals & ((1 << 100) - 1))))
        for offset in rng.choice(level.offsets, num_steps).tolist():
            origin, ahead = player - offset, 1 << (player + offset)
            if not (level.walls | boxes) >> origin & 1:
                if boxes & ahead:
                    boxes ^= ahead | 1 << player
                player = origin
                assert find_deadlock(SokobanState(level, boxes, player)) is None


def test_a_verdict_holds_for_successors_and_as_the_player_walks():
    for state, _ in labelled_positions(30, 4):
        if find_deadlock(state):
            for action in range(4):
                assert find_deadlock(push(state, action), search_nodes=10_000), state.to_xsb()
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


def test_boxes_frozen_on_goals_are_walls_and_impossible_positions_are_refused():
    # The two boxes on goals hold each other and shut the third goal off; any two of the boxes alone could be solved.
    state = parse_level("#######\n#.**  #\n##    #\n#  $  #\n#   @ #\n#######")
    assert find_deadlock(state) is not None
    assert (state.boxes, state.player) not in retrograde(state.level, max_moves=None, max_states=10**6)
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
    run_python(code)
