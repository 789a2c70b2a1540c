"""The Sokoban environment: rules, rooms and words put together."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tsr_gym import ConfigError, GenerationFailed, Limits, Step, TextEnv
from tsr_gym.codec import encode
from tsr_gym.state_env import new_tuple
from tsr_gym_envs.settings import settings_from
from tsr_gym_envs.sokoban import oracle
from tsr_gym_envs.sokoban.generate import check_room_settings, draw_room
from tsr_gym_envs.sokoban.levels import LevelFiles, parse_level
from tsr_gym_envs.sokoban.observation import OBSERVATIONS
from tsr_gym_envs.sokoban.rules import ACTIONS, Rewards, SokobanState, push, reward_of
from tsr_gym_envs.sokoban.symmetry import canonical_form
from tsr_gym_envs.split import SPLITS, in_split

_NUMBERS = {word: number for number, name in enumerate(ACTIONS) for word in (name, name.lower())}
_IMPOSSIBLE = {"action_is_valid": False}
_POSSIBLE: dict[str, Any] = {}
MAX_DRAWS = 10_000

# What TSR's paper states, and what the code that its authors released does.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "tsr-code": {"obs_type": "grid_coord", "max_actions_per_turn": 2},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SokobanSettings:
    """What decides the rooms, the rewards, the limits and the words of a `SokobanEnv`; see its documentation."""

    preset: str = "paper"
    obs_type: str = "grid"
    dim: tuple[int, int] = (6, 6)
    num_boxes: int = 1
    solution_length: tuple[int, int] = (1, 10)
    split: str = "all"
    level: str | None = None
    levels: str | None = None
    reward_step: float = -0.1
    reward_box: float = 1.0
    reward_done: float = 10.0
    max_turns: int | None = 5
    max_actions_per_turn: int | None = 5
    max_actions: int | None = 10

    def __post_init__(self) -> None:
        if self.obs_type not in OBSERVATIONS:
            raise ConfigError(f"wanted obs_type of {sorted(OBSERVATIONS)}, got {self.obs_type!r}")
        if self.level is not None and self.levels is not None:
            raise ConfigError("wanted level or levels, got both")
        if self.levels is None and self.split not in SPLITS:
            raise ConfigError(f"wanted split of {sorted(SPLITS)}, got {self.split!r}")
        if self.level is None and self.levels is None:
            check_room_settings(self.dim, self.num_boxes, self.solution_length)


class SokobanEnv(TextEnv[SokobanState]):
    """Push every box onto a goal.

    ## Description
    A player walks through a walled room and pushes boxes, one at a time and never pulls. With the defaults, rooms are
    6x6 with one box, solvable within the limits, and differ for every `reset` seed.

    ## Action Space
    Text: ``Up``, ``Down``, ``Left``, ``Right``, in any case, several in a turn joined by ``||``. A direction moves the
    player, pushes a box that has free floor behind it, or does nothing (and still counts and pays the step reward).
    Words that mean nothing are dropped, the rest of the turn is carried out.

    ## Observation Space
    Text, by `obs_type`: ``grid`` (rows of ``#`` wall, ``_`` floor, ``O`` goal, ``X`` box, ``√`` box on goal, ``P``
    player, ``S`` player on goal), ``coord`` (row and column of every piece), ``grid_coord`` (both), ``compact`` (for
    very small models).

    ## Starting State
    A room from the generator; from `levels`, a file or folder of XSB or Boxoban levels; or the one `level`. The same
    three can be chosen for one episode by ``reset(options={"level": XSB_TEXT})``.

    ## Rewards
    -0.1 per action; +1 for a box pushed onto a goal, -1 off it; +10 when all boxes are on goals (TSR D.1). Each is a
    keyword.

    ## Episode End
    Terminates when solved; truncates after `max_turns` turns or `max_actions` actions.

    ## Information
    As every `TextEnv`: ``action_is_valid``, ``action_is_effective``, ``executed``, ``success``, ``turns_left``,
    ``actions_left``.

    ## Arguments
    | keyword | default (preset ``paper``) | ``tsr-code`` |
    |---|---|---|
    | `obs_type` | ``grid`` | ``grid_coord`` |
    | `max_turns`, `max_actions_per_turn`, `max_actions` | 5, 5, 10 | 5, 2, 10 |
    | `dim`, `num_boxes`, `solution_length` | (6, 6), 1, (1, 10) | same |
    | `split` | ``all``; ``train``, ``valid`` or ``test`` never share a room up to symmetry and translation | same |
    | `level`, `levels` | None: generated rooms | same |
    | `reward_step`, `reward_box`, `reward_done` | -0.1, 1, 10 | same |

    ## Version History
    v0: first version.
    """

    actions = ACTIONS
    instructions = (
        "You are solving a Sokoban puzzle: push every box onto a target. You can push boxes but not pull them, and one "
        "at a time, so keep boxes out of corners. On the grid, # is a wall, _ floor, O a target, X a box, √ a box on a "
        "target, P you, and S you on a target; coordinates are (row, column), counted from 0 at the top left. Your "
        "actions are Up, Down, Left and Right; write several in one answer with || between them, for example "
        "<answer>Right || Up</answer>. Every action costs 0.1, a box on its target earns 1, and solving the puzzle 10."
    )
    draws_noise = False

    def __init__(self, settings: SokobanSettings = SokobanSettings(), *, render_mode: str | None = None) -> None:
        limits = Limits(settings.max_turns, settings.max_actions_per_turn, settings.max_actions)
        super().__init__(settings, limits=limits, render_mode=render_mode)
        self.settings = settings
        self._describe = OBSERVATIONS[settings.obs_type]
        self._rewards = Rewards(settings.reward_step, settings.reward_box, settings.reward_done)
        self._files = None if settings.levels is None else _level_files(settings.levels, settings.split)
        self._level = None if settings.level is None else parse_level(settings.level)

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> SokobanState:
        """Return a room: the one in the options, the given one, one from the files, or a generated one."""
        unknown = sorted(set(options) - {"level"})
        if unknown:
            raise ConfigError(f"wanted reset options among ['level'], got {unknown}")
        if "level" in options:
            return parse_level(options["level"])
        if self._level is not None:
            return self._level
        if self._files is not None:
            levels = self._files.read(int(rng.integers(len(self._files.files))))
            return levels[rng.integers(len(levels))]
        return self._draw(rng)

    def _draw(self, rng: np.random.Generator) -> SokobanState:
        settings = self.settings
        for _ in range(MAX_DRAWS):
            state = draw_room(
                rng, dim=settings.dim, num_boxes=settings.num_boxes, solution_length=settings.solution_length
            )
            if in_split(self.state_key(canonical_form(state)), settings.split):
                return state
        raise GenerationFailed(
            f"no room of split {settings.split!r} in {MAX_DRAWS} draws: widen the settings {settings}"
        )

    def transition(self, state: SokobanState, action: str, rng: np.random.Generator) -> Step:
        """Return what one named action does."""
        number = _NUMBERS.get(action)
        if number is None:
            number = _NUMBERS.get(action.lower())
            if number is None:
                return Step(state, 0.0, False, _IMPOSSIBLE)
        after = push(state, number)
        level, boxes, _ = after
        reward = self._rewards.step if boxes == state.boxes else reward_of(state, after, self._rewards)
        return new_tuple(Step, (after, reward, boxes == level.goals, _POSSIBLE))

    def observe(self, state: SokobanState) -> str:
        """Return the position in the words of `obs_type`."""
        return self._describe(state)

    def state_key(self, state: SokobanState) -> bytes:
        """Return the bytes of walls, goals, boxes and player."""
        level, boxes, player = state
        return encode((level.height, level.width, level.walls, level.goals, boxes, player))

    def is_success(self, state: SokobanState) -> bool:
        """Return whether all boxes stand on goals."""
        level, boxes, _ = state
        return boxes == level.goals

    def optimal_turn(self, state: SokobanState, turns_left: int | None, actions_left: int | None) -> str | None:
        """Return the next actions of a shortest solution; None where there is none or the board is too large."""
        if oracle.distance_table(state.level) is None:
            return None
        plan = oracle.shortest_solution(state)
        return " || ".join(ACTIONS[action] for action in plan[: self.limits.max_actions_per_turn]) if plan else None

    def success_bars(self, state: SokobanState) -> tuple[float, float] | None:
        """Return the success of uniformly random actions, and 1 or 0 as a solution fits into the limits."""
        if oracle.distance_table(state.level) is None or self.limits.max_actions is None:
            return None
        limits = self.limits
        budget = self.limits.max_actions
        if limits.max_turns is not None and limits.max_actions_per_turn is not None:
            budget = min(budget, limits.max_turns * limits.max_actions_per_turn)
        moves = oracle.distance(state)
        return oracle.random_success(state, budget), float(moves is not None and moves <= budget)


@lru_cache(maxsize=8)
def _level_files(path: str, split: str) -> LevelFiles:
    return LevelFiles(path, split=None if split == "all" else split)


def make(preset: str = "paper", render_mode: str | None = None, **settings: Any) -> SokobanEnv:
    """Make the environment behind ``gym.make("tsr/Sokoban-v0", ...)``.

    Args:
        preset: ``"paper"`` or ``"tsr-code"``.
        render_mode: ``"ansi"`` or None.
        settings: Fields of `SokobanSettings`; they win over the preset.

    Raises:
        ConfigError: A setting is unknown or impossible.
        InvalidLevel: `level` or `levels` is malformed.
    """
    return SokobanEnv(settings_from(SokobanSettings, PRESETS, preset, settings), render_mode=render_mode)
