"""Solutions as LURD text: ``l u r d`` move, ``L U R D`` push; a count before a letter repeats it."""

from collections.abc import Iterable, Sequence

from tsr_gym.errors import InvalidLevel
from tsr_gym_envs.sokoban.rules import LURD, SokobanState, push
from tsr_gym_envs.sokoban.runlength import expand_runs

MAX_LENGTH = 1_000_000


def parse_lurd(text: str) -> tuple[int, ...]:
    """Return the actions of a solution as indices into `rules.ACTIONS`; blanks and line ends are skipped.

    Raises:
        InvalidLevel: A character is none of ``l u r d L U R D``, or a count is impossible.

    >>> parse_lurd("u2R")
    (0, 3, 3)
    """
    return tuple(LURD.index(letter.lower()) for letter in _letters(text))


def play_lurd(state: SokobanState, lurd: str) -> SokobanState:
    """Return where a solution leads; every letter is checked, so that it can serve as a proof.

    Raises:
        InvalidLevel: A step runs into something, moves where it should push, or pushes where it should move.
    """
    for number, letter in enumerate(_letters(lurd), start=1):
        after = push(state, LURD.index(letter.lower()))
        if after is state:
            raise InvalidLevel(f"solution, letter {number}: wanted a way to go for {letter!r}, something is in the way")
        if (after.boxes != state.boxes) != letter.isupper():
            wanted, got = ("push", "move") if letter.isupper() else ("move", "push")
            raise InvalidLevel(f"solution, letter {number}: wanted a {wanted} for {letter!r}, got a {got}")
        state = after
    return state


def to_lurd(state: SokobanState, actions: Iterable[int]) -> str:
    """Return actions, indices into `rules.ACTIONS`, as text; those that change nothing are left out."""
    letters = []
    for action in actions:
        after = push(state, action)
        if after is not state:
            letters.append(LURD[action] if after.boxes == state.boxes else LURD[action].upper())
        state = after
    return "".join(letters)


def lurd_of_boards(state: SokobanState, boards: Sequence[int]) -> str:
    """Return a shortest text that makes pushes in the given order.

    Args:
        state: Where it starts.
        boards: Bitboards of the boxes after each push.
    """
    letters = []
    for boxes in boards:
        origin = (state.boxes & ~boxes).bit_length() - 1
        target = (boxes & ~state.boxes).bit_length() - 1
        action = state.level.offsets.index(target - origin)
        letters += [LURD[step] for step in walk_to(state, 2 * origin - target)]
        letters.append(LURD[action].upper())
        state = SokobanState(state.level, boxes, origin)
    return "".join(letters)


def walk_to(state: SokobanState, cell: int) -> list[int]:
    """Return a shortest walk to a cell that the player can reach, as indices into `rules.ACTIONS`."""
    level = state.level
    width, free = level.width, ~(level.walls | state.boxes)
    layers = [1 << state.player]
    seen = layers[0]
    while not layers[-1] >> cell & 1:
        rim = layers[-1]
        rim = (rim << 1 | rim >> 1 | rim << width | rim >> width) & free & ~seen
        if not rim:
            raise ValueError(f"wanted a cell that the player can reach, got {cell}")
        seen |= rim
        layers.append(rim)
    steps = []
    for layer in layers[-2::-1]:
        action = next(action for action, offset in enumerate(level.offsets) if layer >> (cell - offset) & 1)
        steps.append(action)
        cell -= level.offsets[action]
    return steps[::-1]


def _letters(text: str) -> str:
    try:
        letters = expand_runs("".join(text.split()), MAX_LENGTH)
    except ValueError as error:
        raise InvalidLevel(f"solution, {error}") from None
    for number, letter in enumerate(letters, start=1):
        if letter not in "lurdLURD":
            raise InvalidLevel(f"solution, letter {number}: wanted one of l u r d L U R D, got {letter!r}")
    return letters
