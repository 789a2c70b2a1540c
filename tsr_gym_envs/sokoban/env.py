"""The Sokoban text environment: rules, rooms and observations put together."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.core import RenderFrame

from tsr_gym import Limits, Step, TextEnv
from tsr_gym.state_env import new_tuple
from tsr_gym.teaching import Teaching, taught_by_oracle
from tsr_gym.text_env import Guide
from tsr_gym_envs.reasons import unknown_action
from tsr_gym_envs.settings import actions_within
from tsr_gym_envs.sokoban.discrete_env import TILES, SokobanDiscreteEnv, SokobanFacts, tile_codes
from tsr_gym_envs.sokoban.plan import best_value, shortest_plan
from tsr_gym_envs.sokoban.rooms import Rooms
from tsr_gym_envs.sokoban.rules import (
    ACTIONS,
    OBSERVATIONS,
    Rewards,
    SokobanState,
    canonical_form,
    push,
    reward_of,
    state_key,
)
from tsr_gym_envs.sokoban.score import distance, distance_table, random_success
from tsr_gym_envs.sokoban.settings import SokobanSettings, make_settings
from tsr_gym_envs.tiles import RENDERING, ZOOM, picture, with_window

# The table has both spellings, so that usual actions are looked up without lower().
_NUMBERS = {word: number for number, name in enumerate(ACTIONS) for word in (name, name.lower())}
_POSSIBLE: dict[str, Any] = {}


class SokobanEnv(SokobanFacts, TextEnv[SokobanState]):
    """Push every box onto a goal.

    ## Description
    A player walks through a walled room and pushes boxes, one at a time and never pulls. With the defaults, rooms are
    6x6 with one box, solvable within the limits, and differ for every `reset` seed.

    ## Action Space
    Text: ``Up``, ``Down``, ``Left``, ``Right``, in any case, several in a turn joined by ``||``. A direction moves the
    player, pushes a box that has free floor behind it, or does nothing (and still counts and pays the step reward).
    Words that mean nothing are dropped, the rest of the turn is carried out. With ``action_type="discrete"``, the
    numbers 0 to 3 in the same order, one a step.

    ## Observation Space
    Text, by `obs_type`: ``grid`` (rows of ``#`` wall, ``_`` floor, ``O`` goal, ``X`` box, ``√`` box on goal, ``P``
    player, ``S`` player on goal), ``coord`` (row and column of every piece), ``grid_coord`` (both), ``compact`` (for
    very small models). Where actions are discrete also arrays of uint8: ``array`` (`[H, W]` codes: 0 wall, 1 floor, 2
    goal, 3 box on goal, 4 box, 5 player, 6 player on goal), ``onehot`` (`[7, H, W]` planes of these codes), ``rgb``
    (`[8 H, 8 W, 3]` pixels). Boards have the size `dim` or that of the largest level; `shape` pads them with wall.

    ## Starting State
    A room from the generator; from `levels`, a file or folder of XSB or Boxoban levels; or the one `level`. With the
    generators ``ragen`` and ``gym-sokoban``, ``reset(seed=s)`` leads to the very room that is published for the seed s;
    if `split` leaves that out, to the first room inside that ``numpy.random.default_rng(s)`` leads to. `num_levels`
    allows only the rooms of the seeds 0, 1, ... or the first levels of the files. For one episode,
    ``reset(options={"level": XSB_TEXT})`` gives a board and ``reset(options={"number": n})`` the room number n.

    ## Rewards
    -0.1 per action; +1 for a box pushed onto a goal, -1 off it; +10 when all boxes are on goals (TSR D.1). Each is a
    keyword.

    ## Episode End
    Terminates when solved; truncates after `max_turns` turns or `max_actions` actions.

    ## Information
    As every `TextEnv`: ``action_is_valid``, ``invalid_reason``, ``action_is_effective``, ``executed``, ``success``,
    ``turns_left``, ``actions_left``; where actions are discrete, ``action_is_effective``, ``success``,
    ``actions_left`` where it is limited, and ``action_mask``, 1 for the actions that change the position.

    ## Arguments
    | keyword | default (preset ``paper``) | ``tsr-code`` |
    |---|---|---|
    | `obs_type` | ``grid``; ``array`` where actions are discrete | ``grid_coord`` |
    | `action_type` | ``text``; ``discrete`` where `obs_type` is an array | same |
    | `max_turns`, `max_actions_per_turn`, `max_actions` | 5, 5, 10 | 5, 2, 10 |
    | the same where actions are discrete | None, None, 120 | same |
    | `generator` | ``native``, ``ragen`` or ``gym-sokoban`` | same |
    | `dim`, `num_boxes` | (6, 6), 1 | same |
    | `solution_length` | (1, 10); only of native rooms | same |
    | `search_depth` | 300; only of RAGEN's rooms | same |
    | `split` | ``all``; ``train``, ``valid`` or ``test`` never share a room up to symmetry and translation | same |
    | `level`, `levels` | None: generated rooms | same |
    | `num_levels` | None: as many rooms as there are | same |
    | `shape` | None: the size of the largest room; only where actions are discrete | same |
    | `reward_step`, `reward_box`, `reward_done` | -0.1, 1, 10 | same |
    | `render_mode` | None, ``ansi``, ``rgb_array`` (32 pixels a cell) or ``human`` (needs pygame) | same |

    ``gym.make_vec("tsr/Sokoban-v0", num_envs=N)`` gives arrays and not text, because it plays N of them in compiled
    code; it takes the same keywords and has its own snapshots, see `tsr_gym_envs.sokoban.vector_env`. With
    ``vectorization_mode="sync"`` or ``"async"`` it gives text.

    ## Version History
    v0: first version.
    """

    actions = ACTIONS
    guide = Guide("tsr_gym.wrappers:SokobanScore", {"potential": "next_push"})
    model_forms = frozenset({"obs_type"})
    metadata = RENDERING
    instructions = (
        "You are solving a Sokoban puzzle: push every box onto a target. You can push boxes but not pull them, and one "
        "at a time, so keep boxes out of corners. On the grid, # is a wall, _ floor, O a target, X a box, √ a box on a "
        "target, P you, and S you on a target; coordinates are (row, column), counted from 0 at the top left. Your "
        "actions are Up, Down, Left and Right; write several in one answer with || between them, for example "
        "<answer>Right || Up</answer>. Every action costs 0.1, a box on its target earns 1, and solving the puzzle 10."
    )
    draws_noise = False

    def __init__(self, settings: SokobanSettings, *, render_mode: str | None = None) -> None:
        limits = Limits(settings.max_turns, settings.max_actions_per_turn, settings.max_actions)
        super().__init__(settings, limits=limits, render_mode=render_mode)
        self.settings = settings
        self._describe = OBSERVATIONS[settings.obs_type]
        self._rewards = Rewards(settings.reward_step, settings.reward_box, settings.reward_done)
        self._rooms = Rooms(settings)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode."""
        return super().reset(seed=seed, options=self._rooms.options_of(seed, options))

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> SokobanState:
        """Return the start of an episode: the room that the options give or number, or a random one."""
        return self._rooms.start(rng, options)

    def transition(self, state: SokobanState, action: str, rng: np.random.Generator) -> Step:
        """Return the position after one named action, its reward, and whether the room is solved."""
        number = _NUMBERS.get(action)
        if number is None:
            number = _NUMBERS.get(action.lower())
            if number is None:
                return Step(state, 0.0, False, unknown_action(action, ACTIONS))
        after = push(state, number)
        level, boxes, _ = after
        # Most actions push no box; they skip the call of `reward_of`.
        reward = self._rewards.step if boxes == state.boxes else reward_of(state, after, self._rewards)
        return new_tuple(Step, (after, reward, boxes == level.goals, _POSSIBLE))

    def observe(self, state: SokobanState) -> str:
        """Return the position in the words of `obs_type`."""
        return self._describe(state)

    def render(self) -> RenderFrame | list[RenderFrame] | None:
        """Return the position as a picture, or as text where `render_mode` is ``"ansi"``."""
        if self.render_mode != "rgb_array":
            return super().render()
        level = self.state.level
        return picture(tile_codes(self.state, (level.height, level.width)), TILES, ZOOM)

    def optimal_turn(self, state: SokobanState, turns_left: int | None, actions_left: int | None) -> str | None:
        """Return the next turn of a shortest plan as text; None if no plan exists or the search gave up."""
        plan = shortest_plan(state)
        return " || ".join(ACTIONS[action] for action in plan[: self.limits.max_actions_per_turn]) if plan else None

    def best_value(self, state: SokobanState, turns_left: int | None, actions_left: int | None) -> float | None:
        """Return 1.0 if a solution fits into the limits, 0.0 if none does, None if the solver gives up."""
        return best_value(state, actions_within(turns_left, actions_left, self.limits.max_actions_per_turn))

    def form(self, state: SokobanState) -> bytes:
        """Return the key of the room's canonical form, which its rotations and reflections share."""
        return state_key(canonical_form(state))

    def teaching(self) -> Teaching:
        """Return the demonstrations of the oracle, with compact observations."""
        return taught_by_oracle(obs_type="compact")

    def success_bars(self, state: SokobanState) -> tuple[float, float] | None:
        """Return the success of uniformly random actions, and 1.0 or 0.0: whether a solution fits into the limits."""
        limits = self.limits
        if distance_table(state.level) is None or limits.max_actions is None:
            return None
        budget = actions_within(limits.max_turns, limits.max_actions, limits.max_actions_per_turn)
        assert budget is not None
        moves = distance(state)
        return random_success(state, budget), float(moves is not None and moves <= budget)


def make(preset: str = "paper", render_mode: str | None = None, **settings: Any) -> gym.Env[Any, Any]:
    """Make the environment behind ``gym.make("tsr/Sokoban-v0", ...)``.

    Args:
        preset: ``"paper"`` or ``"tsr-code"``.
        render_mode: ``"ansi"``, ``"rgb_array"``, ``"human"`` or None.
        settings: Fields of `SokobanSettings`; they win over the preset.

    Raises:
        ConfigError: A setting is unknown or impossible.
        InvalidLevel: `level` or `levels` is malformed.
        MissingExtra: The generator needs numba, or the window pygame.
    """
    config = make_settings(preset, settings)
    make_env = SokobanDiscreteEnv if config.action_type == "discrete" else SokobanEnv
    return with_window(lambda mode: make_env(config, render_mode=mode), render_mode)
