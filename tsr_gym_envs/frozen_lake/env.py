"""The FrozenLake environment: rules, maps and words put together."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.utils import seeding

from tsr_gym import ConfigError, GenerationFailed, Limits, Step, TextEnv
from tsr_gym.codec import encode
from tsr_gym_envs.frozen_lake import optimal
from tsr_gym_envs.frozen_lake.maps import GENERATORS, check_map_settings, draw_ragen_map, gymnasium_map
from tsr_gym_envs.frozen_lake.observation import OBSERVATIONS
from tsr_gym_envs.frozen_lake.rules import ACTIONS, DEFAULT_SUCCESS_RATE, MAPS, FrozenLakeState, Ice, check_map, moves
from tsr_gym_envs.settings import settings_from
from tsr_gym_envs.split import SPLITS, in_split
from tsr_gym_envs.symmetry import symmetries

_NUMBERS = {name.lower(): number for number, name in enumerate(ACTIONS)}
_IMPOSSIBLE = {"action_is_valid": False}
MAX_DRAWS = 10_000

# What TSR's paper states, and what the code that its authors released does.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "tsr-code": {"obs_type": "grid_coord", "p": 0.9, "success_rate": 0.8, "max_actions_per_turn": 2},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenLakeSettings:
    """What decides the maps, the ice, the limits and the words of a `FrozenLakeEnv`; see its documentation."""

    preset: str = "paper"
    obs_type: str = "grid"
    desc: tuple[str, ...] | None = None
    map_name: str | None = None
    generator: str = "ragen"
    size: int = 4
    p: float = 0.8
    noise: str = "separate"
    is_slippery: bool = True
    success_rate: float = DEFAULT_SUCCESS_RATE
    reward_schedule: tuple[float, float, float] = (1.0, 0.0, 0.0)
    split: str = "all"
    max_turns: int | None = 5
    max_actions_per_turn: int | None = 5
    max_actions: int | None = 10

    def __post_init__(self) -> None:
        for name, value, known in (
            ("obs_type", self.obs_type, OBSERVATIONS),
            ("generator", self.generator, GENERATORS),
            ("noise", self.noise, ("separate", "shared")),
            ("split", self.split, SPLITS),
        ):
            if value not in known:
                raise ConfigError(f"wanted {name} of {sorted(known)}, got {value!r}")
        if self.map_name is not None and self.map_name not in MAPS:
            raise ConfigError(f"wanted map_name of {sorted(MAPS)}, got {self.map_name!r}")
        if self.desc is not None and self.map_name is not None:
            raise ConfigError("wanted desc or map_name, got both")
        if self.desc is None and self.map_name is None:
            check_map_settings(self.size, self.p)


class FrozenLakeEnv(TextEnv[FrozenLakeState]):
    """Cross a frozen lake to the goal without falling into a hole, on ice that may carry you elsewhere.

    ## Description
    Gymnasium's FrozenLake in words. With the defaults, the 4x4 map differs for every `reset` seed, with random start
    and goal (RAGEN's generator), and the intended direction is taken one time in three.

    ## Action Space
    Text: ``Left``, ``Down``, ``Right``, ``Up``, in any case, several in a turn joined by ``||``. Words that mean
    nothing are dropped, the rest of the turn is carried out; a turn ends where the episode does.

    ## Observation Space
    Text, by `obs_type`: ``grid`` (``P`` player, ``_`` ice, ``O`` hole, ``G`` goal, ``X`` player in a hole, ``√`` player
    on the goal), ``coord`` (row and column), ``grid_coord`` (both), ``compact`` (for very small models).

    ## Starting State
    A start cell of a map from the generator, from `desc`, or from `map_name`; or of
    ``reset(options={"desc": [...]})``.

    ## Rewards
    `reward_schedule`: 1 for the goal, 0 for a hole, 0 for any other cell.

    ## Episode End
    Terminates on the goal and in a hole; truncates after `max_turns` turns or `max_actions` actions.

    ## Information
    As every `TextEnv`: ``action_is_valid``, ``action_is_effective``, ``executed``, ``success``, ``turns_left``,
    ``actions_left``.

    ## Arguments
    | keyword | default (preset ``paper``) | ``tsr-code`` |
    |---|---|---|
    | `obs_type` | ``grid`` | ``grid_coord`` |
    | `max_turns`, `max_actions_per_turn`, `max_actions` | 5, 5, 10 | 5, 2, 10 |
    | `is_slippery`, `success_rate` | True, 1/3 | True, 0.8 |
    | `size`, `p`, `generator` | 4, 0.8, ``ragen`` (or ``gymnasium``) | 4, 0.9, ``ragen`` |
    | `desc`, `map_name` | None: generated maps | same |
    | `noise` | ``separate``: the map and the ice draw from different streams; ``shared``: as RAGEN | same |
    | `split` | ``all``; ``train``, ``valid`` or ``test`` never share a map up to symmetry | same |
    | `reward_schedule` | (1, 0, 0) | same |

    TSR's reported success of 60.7 % lies above the best possible 47.7 % of the setting that its paper states; see
    `tsr_gym_envs.frozen_lake.optimal`.

    ## Version History
    v0: first version.
    """

    actions = ACTIONS
    instructions = (
        "You are crossing a frozen lake: reach the goal and keep out of the holes. The ice may be slippery and carry "
        "you to the side of the direction that you chose. On the grid, P is you, _ ice, O a hole, G the goal, X you in "
        "a hole, and √ you on the goal; coordinates are (row, column), counted from 0 at the top left. Your actions "
        "are Left, Down, Right and Up; write several in one answer with || between them, for example "
        "<answer>Right || Up</answer>. Reaching the goal earns 1."
    )

    def __init__(self, settings: FrozenLakeSettings = FrozenLakeSettings(), *, render_mode: str | None = None) -> None:
        limits = Limits(settings.max_turns, settings.max_actions_per_turn, settings.max_actions)
        super().__init__(settings, limits=limits, render_mode=render_mode)
        self.settings = settings
        self.draws_noise = settings.is_slippery
        self._describe = OBSERVATIONS[settings.obs_type]
        self._ice = Ice(settings.success_rate if settings.is_slippery else 1.0, settings.reward_schedule)
        desc = settings.desc if settings.map_name is None else MAPS[settings.map_name]
        self._desc = None if desc is None else check_map(desc)
        self._has_optimum = optimal.is_feasible(limits.max_actions, limits.max_turns, limits.max_actions_per_turn)

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> FrozenLakeState:
        """Return a start on a map: the one in the options, the given one, or a generated one."""
        if unknown := sorted(set(options) - {"desc"}):
            raise ConfigError(f"wanted reset options among ['desc'], got {unknown}")
        desc = check_map(tuple(options["desc"])) if "desc" in options else self._desc or self._draw_map(rng)
        starts = [cell for cell, letter in enumerate("".join(desc)) if letter == "S"]
        # Gymnasium draws one number for the start, also where there is only one.
        return FrozenLakeState(desc, starts[int(rng.random() * len(starts))])

    def _draw_map(self, rng: np.random.Generator) -> tuple[str, ...]:
        settings = self.settings
        if settings.noise == "shared":
            # RAGEN seeds the map and the ice alike: draw the map from a twin and leave the stream where it is.
            source = np.random.Generator(np.random.PCG64())
            source.bit_generator.state = rng.bit_generator.state
        else:
            source = seeding.np_random(int(rng.integers(2**63)))[0]
        for _ in range(MAX_DRAWS):
            if settings.generator == "ragen":
                desc = tuple(draw_ragen_map(source, settings.size, settings.p))
            else:
                desc = tuple(gymnasium_map(int(source.integers(2**31)), settings.size, settings.p))
            if in_split("\n".join(min(symmetries(desc))).encode(), settings.split):
                return desc
        raise GenerationFailed(
            f"no map of split {settings.split!r} in {MAX_DRAWS} draws: widen the settings {settings}"
        )

    def transition(self, state: FrozenLakeState, action: str, rng: np.random.Generator) -> Step:
        """Return where one named action leads on this ice."""
        number = _NUMBERS.get(action.lower())
        if number is None:
            return Step(state, 0.0, False, _IMPOSSIBLE)
        move = moves(state.desc, self._ice, self.settings.is_slippery)[state.position][number]
        chance, position, reward, ended = move.draw(rng.random()) if self.draws_noise else move.outcomes[0]
        return Step(FrozenLakeState(state.desc, position), float(reward), ended, {"prob": chance})

    def observe(self, state: FrozenLakeState) -> str:
        """Return the position in the words of `obs_type`."""
        return self._describe(state)

    def state_key(self, state: FrozenLakeState) -> bytes:
        """Return the bytes of map and position; a start cell counts as ice, which it is once the episode runs."""
        return encode(("\n".join(state.desc).replace("S", "F"), state.position))

    def is_success(self, state: FrozenLakeState) -> bool:
        """Return whether the player stands on a goal."""
        return state.cell == "G"

    def optimal_turn(self, state: FrozenLakeState, turns_left: int | None, actions_left: int | None) -> str | None:
        """Return the turn with the best chance of success within the limits; None where that is not worked out.

        That is without a limit of actions, and for turns so long that their sequences are too many.
        """
        if actions_left is None or not self._has_optimum:
            return None
        names = optimal.optimal_turn(
            state.desc,
            state.position,
            ice=Ice(self._ice.success_rate),
            turns_left=turns_left,
            actions_left=actions_left,
            max_actions_per_turn=self.limits.max_actions_per_turn,
        )
        return " || ".join(names)

    def success_bars(self, state: FrozenLakeState) -> tuple[float, float] | None:
        """Return the exact success of random actions and of the best policy, None where `optimal_turn` is."""
        limits = self.limits
        if limits.max_actions is None or not self._has_optimum:
            return None
        rate = self._ice.success_rate
        budget = limits.max_actions
        if limits.max_turns is not None and limits.max_actions_per_turn is not None:
            budget = min(budget, limits.max_turns * limits.max_actions_per_turn)
        return (
            optimal.random_success(state.desc, success_rate=rate, max_actions=budget),
            optimal.success_ceiling(
                state.desc,
                success_rate=rate,
                max_actions=limits.max_actions,
                max_turns=limits.max_turns,
                max_actions_per_turn=limits.max_actions_per_turn,
            ),
        )


def make(preset: str = "paper", render_mode: str | None = None, **settings: Any) -> FrozenLakeEnv:
    """Make the environment behind ``gym.make("tsr/FrozenLake-v0", ...)``.

    Args:
        preset: ``"paper"`` or ``"tsr-code"``.
        render_mode: ``"ansi"`` or None.
        settings: Fields of `FrozenLakeSettings`; they win over the preset.

    Raises:
        ConfigError: A setting is unknown or impossible.
        InvalidLevel: The map is malformed.
    """
    return FrozenLakeEnv(settings_from(FrozenLakeSettings, PRESETS, preset, settings), render_mode=render_mode)
