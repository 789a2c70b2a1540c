"""The batch kernel against boards drawn in characters, and under the eight symmetries."""

import numpy as np
import pytest

from tests.conftest import deep
from tests.tsr_gym_envs.sokoban.boards import NAMES, move, rows_of
from tsr_gym_envs.compiled import words_of
from tsr_gym_envs.sokoban.discrete_env import BOX, BOX_ON_GOAL, FLOOR, GOAL, PLAYER, WALL, tile_codes
from tsr_gym_envs.sokoban.rooms import generate_room
from tsr_gym_envs.sokoban.vector_env import push_all, start_all

GLYPHS = "# .*$@+"
PAY = np.array((-0.1, 1.0, 10.0))
STEPS = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


class Batch:
    """Boards under the kernel, without an environment around them."""

    def __init__(self, boards):
        self.boards = np.array(boards, order="C")
        num, self.height, self.width = boards.shape
        flat = self.boards.reshape(num, -1)
        self.places = np.zeros((num, 4), np.int32)
        self.places[:, 0] = (flat >= PLAYER).argmax(axis=1)
        self.places[:, 1] = (flat == BOX).sum(axis=1)
        self.rewards = np.zeros(num)
        self.solved, self.effective = np.zeros(num, bool), np.zeros(num, bool)

    def push(self, actions, resting=None):
        num = len(self.boards)
        push_all(
            self.boards.reshape(num, -1), self.places, np.asarray(actions, np.int64),
            np.zeros(num, bool) if resting is None else resting, STEPS @ (self.width, 1), PAY, self.rewards,
            self.solved, self.effective,
        )  # fmt: skip


def random_boards(num, height, width, seed):
    """Boards with a rim of wall, anything inside, and one player."""
    rng = np.random.default_rng(seed)
    boards = np.zeros((num, height, width), np.uint8)
    kinds = (WALL, FLOOR, GOAL, BOX_ON_GOAL, BOX)
    boards[:, 1:-1, 1:-1] = rng.choice(kinds, (num, height - 2, width - 2), p=(0.1, 0.5, 0.15, 0.1, 0.15))
    rows, columns = rng.integers(1, height - 1, num), rng.integers(1, width - 1, num)
    boards[np.arange(num), rows, columns] = PLAYER + rng.integers(2, size=num)
    return boards


def rows_in(board):
    return ["".join(GLYPHS[code] for code in line) for line in board]


def boxes_in(rows):
    return [(row, column) for row, line in enumerate(rows) for column, glyph in enumerate(line) if glyph in "$*"]


def reward_of(before, after):
    gained = sum(row.count("*") for row in after) - sum(row.count("*") for row in before)
    done = boxes_in(before) != boxes_in(after) and not any("$" in row for row in after)
    return PAY[0] + gained * PAY[1] + done * PAY[2]


def play_beside_the_twin(boards, num_steps, seed):
    batch, twins = Batch(boards), [rows_in(board) for board in boards]
    rng = np.random.default_rng(seed)
    for _ in range(num_steps):
        actions = rng.integers(4, size=len(twins))
        batch.push(actions)
        for number, action in enumerate(actions):
            before = twins[number]
            after = twins[number] = move(before, NAMES[action])
            assert rows_in(batch.boards[number]) == after
            assert batch.effective[number] == (before != after)
            assert batch.solved[number] == (not any("$" in row for row in after))
            assert batch.rewards[number] == reward_of(before, after)


SIZES = ((5, 6, 1500), (8, 7, 1000), (10, 10, 500), (20, 20, 100))


@pytest.mark.parametrize(
    ("num", "height", "width", "steps"), [(40, 5, 6, 60), (40, 4, 9, 60), *(deep(500, *size) for size in SIZES)]
)
def test_random_play_is_that_of_boards_in_characters(num, height, width, steps):
    play_beside_the_twin(random_boards(num, height, width, 1), steps, 2)


def test_generated_rooms_are_played_like_boards_in_characters():
    rooms = [generate_room(seed, dim=(7, 7), num_boxes=2) for seed in range(20)]
    boards = np.stack([tile_codes(room, (7, 7)) for room in rooms])
    assert [rows_in(board) for board in boards] == [rows_of(room) for room in rooms]
    play_beside_the_twin(boards, 100, 3)


def test_an_action_and_a_symmetry_commute():
    boards = random_boards(300, 7, 7, 4)
    rng = np.random.default_rng(5)
    views = [(turns, mirrored) for turns in range(4) for mirrored in (False, True)]

    def seen(array, turns, mirrored):
        array = np.rot90(array, turns, axes=(1, 2))
        return array[:, :, ::-1] if mirrored else array

    # A direction turns like the cell next to the middle of a board.
    sent = {}
    for view in views:
        marks = np.zeros((4, 3, 3), np.uint8)
        marks[range(4), 1 + STEPS[:, 0], 1 + STEPS[:, 1]] = 1
        places = np.argwhere(seen(marks, *view))[:, 1:] - 1
        sent[view] = np.array([(place == STEPS).all(axis=1).argmax() for place in places])
    plain, turned = Batch(boards), {view: Batch(seen(boards, *view)) for view in views}
    for _ in range(150):
        actions = rng.integers(4, size=300)
        plain.push(actions)
        for view, other in turned.items():
            other.push(sent[view][actions])
            assert np.array_equal(other.boards, seen(plain.boards, *view))
            assert np.array_equal(other.rewards, plain.rewards)
            assert np.array_equal(other.solved, plain.solved)
            assert np.array_equal(other.effective, plain.effective)


def test_resting_boards_are_left_alone():
    batch = Batch(random_boards(50, 6, 6, 6))
    before = batch.boards.copy(), batch.places.copy()
    resting = np.arange(50) % 2 == 0
    batch.push(np.full(50, 3), resting)
    assert np.array_equal(batch.boards[resting], before[0][resting])
    assert np.array_equal(batch.places[resting], before[1][resting])
    assert not batch.rewards[resting].any()
    assert (batch.rewards[~resting] != 0).all()


def test_rooms_are_chosen_by_the_streams_of_their_environments():
    pool, places = random_boards(7, 5, 5, 7).reshape(7, 25), np.arange(28, dtype=np.int32).reshape(7, 4)
    streams = np.stack([words_of(np.random.default_rng(seed)) for seed in range(6)])
    boards, own = np.zeros((6, 25), np.uint8), np.zeros((6, 4), np.int32)
    start_all(np.array([4, 1]), streams, pool, places, boards, own)
    for env in (4, 1):
        room = np.random.default_rng(env).integers(7)
        assert np.array_equal(boards[env], pool[room])
        assert np.array_equal(own[env], places[room])
    assert not boards[[0, 2, 3, 5]].any()
