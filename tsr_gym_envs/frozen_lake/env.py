"""The FrozenLake text environment: rules, maps and observations put together."""

from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.core import RenderFrame

from tsr_gym import Limits, Step, TextEnv
from tsr_gym.teaching import Teaching, taught_by_oracle
from tsr_gym.text_env import Guide
from tsr_gym_envs.frozen_lake import values
from tsr_gym_envs.frozen_lake.discrete_env import TILES, FrozenLakeDiscreteEnv, FrozenLakeFacts, tile_codes
from tsr_gym_envs.frozen_lake.lakes import Lakes
from tsr_gym_envs.frozen_lake.rules import ACTIONS, OBSERVATIONS, FrozenLakeState, Ice, moves
from tsr_gym_envs.frozen_lake.settings import FrozenLakeSettings, make_settings
from tsr_gym_envs.reasons import unknown_action
from tsr_gym_envs.tiles import RENDERING, ZOOM, picture, with_window

_NUMBERS = {name.lower(): number for number, name in enumerate(ACTIONS)}


class FrozenLakeEnv(FrozenLakeFacts, TextEnv[FrozenLakeState]):
    """Cross a frozen lake to the goal without falling into a hole, on ice that may carry you elsewhere.

    ## Description
    Gymnasium's FrozenLake in words. With the defaults, the 4x4 map differs for every `reset` seed, with random start
    and goal (RAGEN's generator), and the intended direction is taken one time in three.

    ## Action Space
    Text: ``Left``, ``Down``, ``Right``, ``Up``, in any case, several in a turn joined by ``||``. Words that mean
    nothing are dropped, the rest of the turn is carried out; a turn ends where the episode does. With
    ``action_type="discrete"``, the numbers 0 to 3 in the same order, which is Gymnasium's, one a step.

    ## Observation Space
    Text, by `obs_type`: ``grid`` (``P`` player, ``_`` ice, ``O`` hole, ``G`` goal, ``X`` player in a hole, ``√`` player
    on the goal), ``coord`` (row and column), ``grid_coord`` (both), ``compact`` (for very small models). Where actions
    are discrete also ``discrete`` (the number of the player's cell, as in Gymnasium) and arrays of uint8: ``array``
    (`[H, W]` codes: 0 ice, 1 hole, 2 goal, 3 player, 4 player in a hole, 5 player on the goal), ``onehot`` (`[6, H, W]`
    planes of these codes), ``rgb`` (`[8 H, 8 W, 3]` pixels).

    ## Starting State
    A start cell of a map from the generator, from `desc`, or from `map_name`. `num_levels` allows only the maps of the
    seeds 0, 1, ... For one episode, ``reset(options={"desc": [...]})`` gives a map and
    ``reset(options={"number": n})`` the generator's map for the seed n.

    ## Rewards
    `reward_schedule`: 1 for the goal, 0 for a hole, 0 for any other cell.

    ## Episode End
    Terminates on the goal and in a hole; truncates after `max_turns` turns or `max_actions` actions.

    ## Information
    As every `TextEnv`: ``action_is_valid``, ``invalid_reason``, ``action_is_effective``, ``executed``, ``success``,
    ``turns_left``, ``actions_left``, and ``prob``, the chance of what happened; where actions are discrete,
    ``action_is_effective``, ``success``, ``actions_left`` where it is limited, ``prob``, and ``action_mask``, 1 for the
    actions that can change the position.

    ## Arguments
    | keyword | default (preset ``paper``) | ``tsr-code`` |
    |---|---|---|
    | `obs_type` | ``grid``; ``array`` where actions are discrete | ``grid_coord`` |
    | `action_type` | ``text``; ``discrete`` where `obs_type` is an array or ``discrete`` | same |
    | `max_turns`, `max_actions_per_turn`, `max_actions` | 5, 5, 10 | 5, 2, 10 |
    | the same where actions are discrete | None, None, 100 | same |
    | `is_slippery`, `success_rate` | True, 1/3 | True, 0.8 |
    | `size`, `p`, `generator` | 4, 0.8, ``ragen`` (or ``gymnasium``) | 4, 0.9, ``ragen`` |
    | `desc`, `map_name` | None: generated maps | same |
    | `num_levels` | None: as many maps as there are | same |
    | `noise` | ``separate``: the map and the ice draw from different streams; ``shared``: as RAGEN | same |
    | `split` | ``all``; ``train``, ``valid`` or ``test`` never share a map up to symmetry | same |
    | `reward_schedule` | (1, 0, 0) | same |
    | `render_mode` | None, ``ansi``, ``rgb_array`` (32 pixels a cell) or ``human`` (needs pygame) | same |

    ``gym.make_vec("tsr/FrozenLake-v0", num_envs=N)`` gives arrays and not text, because it plays N of them in compiled
    code; it takes the same keywords and has its own snapshots, see `tsr_gym_envs.frozen_lake.vector_env`. With
    ``vectorization_mode="sync"`` or ``"async"`` it gives text.

    TSR's reported success of 60.7 % lies above the best possible 47.7 % of the setting that its paper states; see
    `tsr_gym_envs.frozen_lake.values`.

    ## Version History
    v0: first version.
    """

    actions = ACTIONS
    first_facts = MappingProxyType({"prob": 1.0})
    guide = Guide("tsr_gym.wrappers:FrozenLakeScore")
    model_forms = frozenset({"obs_type"})
    metadata = RENDERING
    instructions = (
        "You are crossing a frozen lake: reach the goal and keep out of the holes. The ice may be slippery and carry "
        "you to the side of the direction that you chose. On the grid, P is you, _ ice, O a hole, G the goal, X you in "
        "a hole, and √ you on the goal; coordinates are (row, column), counted from 0 at the top left. Your actions "
        "are Left, Down, Right and Up; write several in one answer with || between them, for example "
        "<answer>Right || Up</answer>. Reaching the goal earns 1."
    )

    def __init__(self, settings: FrozenLakeSettings, *, render_mode: str | None = None) -> None:
        limits = Limits(settings.max_turns, settings.max_actions_per_turn, settings.max_actions)
        super().__init__(settings, limits=limits, render_mode=render_mode)
        self.settings = settings
        self.draws_noise = settings.is_slippery
        self._describe = OBSERVATIONS[settings.obs_type]
        self._ice = settings.ice
        self._lakes = Lakes(settings)
        # The optimum enumerates the sequences of actions of a turn, which is infeasible for long turns.
        self._has_optimum = values.is_feasible(limits.max_actions, limits.max_turns, limits.max_actions_per_turn)

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> FrozenLakeState:
        """Return a start, on the map that the options give or number, or on a random one."""
        return self._lakes.start(rng, options)

    def transition(self, state: FrozenLakeState, action: str, rng: np.random.Generator) -> Step:
        """Return the position after one named action, its reward, and whether the episode ends."""
        number = _NUMBERS.get(action.lower())
        if number is None:
            return Step(state, 0.0, False, unknown_action(action, ACTIONS))
        move = moves(state.desc, self._ice, self.settings.is_slippery)[state.position][number]
        chance, position, reward, ended = move.draw(rng.random()) if self.draws_noise else move.outcomes[0]
        return Step(FrozenLakeState(state.desc, position), float(reward), ended, {"prob": chance})

    def observe(self, state: FrozenLakeState) -> str:
        """Return the position in the words of `obs_type`."""
        return self._describe(state)

    def render(self) -> RenderFrame | list[RenderFrame] | None:
        """Return the position as a picture, or as text where `render_mode` is ``"ansi"``."""
        return picture(tile_codes(self.state), TILES, ZOOM) if self.render_mode == "rgb_array" else super().render()

    def optimal_turn(self, state: FrozenLakeState, turns_left: int | None, actions_left: int | None) -> str | None:
        """Return the turn with the best chance of success within the limits; None if it is not computed.

        It is not computed without a limit of actions, or if a turn has too many sequences of actions.
        """
        if actions_left is None or not self._has_optimum:
            return None
        names = values.optimal_turn(
            state.desc,
            state.position,
            ice=Ice(self._ice.success_rate),
            turns_left=turns_left,
            actions_left=actions_left,
            max_actions_per_turn=self.limits.max_actions_per_turn,
        )
        return " || ".join(names)

    def best_value(self, state: FrozenLakeState, turns_left: int | None, actions_left: int | None) -> float | None:
        """Return the exact chance of success of the best play within the limits; None where `optimal_turn` is.

        It is computed by dynamic programming over cells, turns and actions; a turn is a sequence of actions without
        feedback.
        """
        if actions_left is None or not self._has_optimum:
            return None
        if state.cell in "GH":
            return float(state.cell == "G")
        return values.best_value(
            state.desc,
            state.position,
            ice=Ice(self._ice.success_rate),
            turns_left=turns_left,
            actions_left=actions_left,
            max_actions_per_turn=self.limits.max_actions_per_turn,
        )

    def teaching(self) -> Teaching:
        """Return the demonstrations of the oracle, with compact observations."""
        return taught_by_oracle(obs_type="compact")

    def success_bars(self, state: FrozenLakeState) -> tuple[float, float] | None:
        """Return the exact success of random actions and of the best policy, None where `optimal_turn` is."""
        limits = self.limits
        if limits.max_actions is None or not self._has_optimum:
            return None
        rate = self._ice.success_rate
        # Random play is evaluated action by action, so a limit of turns counts as the actions that it allows.
        budget = limits.max_actions
        if limits.max_turns is not None and limits.max_actions_per_turn is not None:
            budget = min(budget, limits.max_turns * limits.max_actions_per_turn)
        return (
            values.random_success(state.desc, success_rate=rate, max_actions=budget),
            values.success_ceiling(
                state.desc,
                success_rate=rate,
                max_actions=limits.max_actions,
                max_turns=limits.max_turns,
                max_actions_per_turn=limits.max_actions_per_turn,
            ),
        )


def make(preset: str = "paper", render_mode: str | None = None, **settings: Any) -> gym.Env[Any, Any]:
    """Make the environment behind ``gym.make("tsr/FrozenLake-v0", ...)``.

    Args:
        preset: ``"paper"`` or ``"tsr-code"``.
        render_mode: ``"ansi"``, ``"rgb_array"``, ``"human"`` or None.
        settings: Fields of `FrozenLakeSettings`; they win over the preset.

    Raises:
        ConfigError: A setting is unknown or impossible.
        InvalidLevel: The map is malformed.
        MissingExtra: A window needs pygame.
    """
    config = make_settings(preset, settings)
    make_env = FrozenLakeDiscreteEnv if config.action_type == "discrete" else FrozenLakeEnv
    return with_window(lambda mode: make_env(config, render_mode=mode), render_mode)
