"""The Countdown environment: settings, instances, turns and their oracle."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tsr_gym import ConfigError, Limits, Step, TextEnv
from tsr_gym.codec import encode
from tsr_gym.ranges import check_limits
from tsr_gym.teaching import Teaching, taught_by_oracle
from tsr_gym.text_env import Guide
from tsr_gym_envs.countdown import rules
from tsr_gym_envs.countdown.rules import MOST, CountdownState
from tsr_gym_envs.reasons import invalid
from tsr_gym_envs.settings import SPLITS, actions_within, in_split, settings_from

PRESETS: dict[str, dict[str, Any]] = {"default": {}, "paper": {}}
OBSERVATIONS = ("sentence", "compact")
_MAX_DRAWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CountdownSettings:
    """Settings of Countdown; `CountdownEnv` documents each of them."""

    preset: str = "default"
    num_numbers: int = 4
    numbers: tuple[int, int] = (1, 20)
    targets: tuple[int, int] = (1, 99)
    use_all: bool = True
    single: bool = False
    split: str = "all"
    obs_type: Literal["sentence", "compact"] = "sentence"
    max_turns: int | None = 8

    def __post_init__(self) -> None:
        check_limits(max_turns=self.max_turns)
        if not 3 <= self.num_numbers <= 6:
            raise ConfigError(f"wanted num_numbers from 3 to 6, got {self.num_numbers}")
        for name, (low, high) in (("numbers", self.numbers), ("targets", self.targets)):
            if not 1 <= low <= high <= MOST:
                raise ConfigError(f"wanted {name} as a range within 1 to {MOST}, got {(low, high)}")
        if self.split not in SPLITS:
            raise ConfigError(f"wanted split of {sorted(SPLITS)}, got {self.split!r}")
        if self.obs_type not in OBSERVATIONS:
            raise ConfigError(f"wanted obs_type of {list(OBSERVATIONS)}, got {self.obs_type!r}")


class CountdownEnv(TextEnv[CountdownState]):
    """Reach a target number from given numbers by + - * /, each number used once.

    ## Description
    The numbers game of TinyZero and of tree search distillation, in turns: each turn combines two of the numbers that
    are left, and its result takes their place. All results are whole numbers from 0 to 199; others are invalid. No
    turn can be taken back, so most turns lead to positions that cannot be solved, which an exact solver knows.

    ## Action Space
    Text: two of the numbers with an operator between them, such as ``8 * 3``. With ``single=True`` a whole expression,
    such as ``(8 - 5) * 3``, which is read by a parser of its operators and executes nothing.

    ## Observation Space
    Text, by `obs_type`: ``sentence`` (the last combination, the numbers that are left, the target), or ``compact``
    (``3 5 8 = 24``, for very small models).

    ## Starting State
    Numbers from the range `numbers` and a target that they reach, drawn by random play.
    ``reset(options={"numbers": [3, 5, 8], "target": 24})`` gives an instance, which may have no solution.

    ## Rewards
    1 for the turn that reaches the target, else 0.

    ## Episode End
    Terminates when the target is reached: from all numbers, or with ``use_all=False`` from some of them. Terminates
    without success when nothing is left to combine, and in the single form after any valid expression. Truncates after
    `max_turns`.

    ## Information
    As every `TextEnv`.

    ## Arguments
    | keyword | default |
    |---|---|
    | `num_numbers` | 4; from 3 to 6 |
    | `numbers` | (1, 20): the least and the greatest number |
    | `targets` | (1, 99): the least and the greatest target |
    | `use_all` | True: every number must be used |
    | `single` | False; True: one turn with a whole expression |
    | `split` | ``all``; ``train``, ``valid`` or ``test``: they share no instance up to the order of numbers |
    | `obs_type` | ``sentence`` or ``compact`` |
    | `max_turns` | 8, invalid ones included; None for any number |
    | `preset` | ``default``; ``paper`` is the same |
    | `render_mode` | None or ``ansi`` |

    ## Version History
    v0: first version.
    """

    draws_noise = False
    guide = Guide("tsr_gym.wrappers:CountdownScore")
    model_forms = frozenset({"obs_type"})

    def __init__(self, settings: CountdownSettings, *, render_mode: str | None = None) -> None:
        super().__init__(settings, limits=Limits(settings.max_turns, 1), separator=None, render_mode=render_mode)
        self.settings = settings
        amount = "all numbers" if settings.use_all else "some of the numbers"
        form = (
            "Answer with one expression that uses each number at most once, such as <answer>(8 - 5) * 3</answer>."
            if settings.single
            else "Each turn combines two numbers, such as <answer>8 * 3</answer>; the result takes their place."
        )
        self.instructions = (
            f"Reach the target from {amount} by + - * /. {form} Every result must be a whole number from 0 to {MOST}."
        )

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> CountdownState:
        """Return an instance of the split, or the one that the options give.

        Raises:
            ConfigError: An option is unknown or impossible, or the settings have no instance in the split.
        """
        if unknown := sorted(set(options) - {"numbers", "target"}):
            raise ConfigError(f"unknown options of reset {unknown}; known: ['numbers', 'target']")
        if options:
            return _given(options)
        settings = self.settings
        for _ in range(_MAX_DRAWS):
            low, high = settings.numbers
            numbers = tuple(sorted(map(int, rng.integers(low, high + 1, size=settings.num_numbers))))
            target = _random_result(numbers, settings.use_all, rng)
            low, high = settings.targets
            state = CountdownState(numbers, target)
            if low <= target <= high and target not in numbers and in_split(self._key(state), settings.split):
                return state
        raise ConfigError(f"no instance of split {settings.split!r} in {_MAX_DRAWS} draws: widen {settings}")

    def transition(self, state: CountdownState, action: str, rng: np.random.Generator) -> Step:
        """Return the numbers after a combination, or the verdict on an expression."""
        if self.settings.single:
            value = rules.evaluated(action, state.numbers, self.settings.use_all)
            if isinstance(value, str):
                return Step(state, 0.0, False, invalid(value))
            last = f"{' '.join(action.split())} = {value}"
            return Step(CountdownState((value,), state.target, last), float(value == state.target), True, {})
        result = rules.step_of(action, state.numbers)
        if isinstance(result, str):
            return Step(state, 0.0, False, invalid(result))
        after = CountdownState(result[0], state.target, result[1])
        is_solved = self.is_success(after)
        return Step(after, float(is_solved), is_solved or next(rules.steps(after.numbers), None) is None, {})

    def observe(self, state: CountdownState) -> str:
        """Return the numbers and the target."""
        numbers = " ".join(map(str, state.numbers))
        if self.settings.obs_type == "compact":
            return f"{numbers} = {state.target}"
        return f"{state.last}\nNumbers: {numbers}\nTarget: {state.target}".lstrip()

    def state_key(self, state: CountdownState) -> bytes:
        """Return the bytes of the numbers and the target."""
        return encode((state.numbers, state.target, self._is_over(state)))

    def is_success(self, state: CountdownState) -> bool:
        """Return whether the target was reached."""
        return self._distance(state) == 0

    def legal_actions(self, state: CountdownState) -> tuple[str, ...]:
        """Return the combinations that are possible, larger number first; in the single form, some expressions."""
        if self._is_over(state):
            return ()
        if self.settings.single:
            return rules.expressions(state.numbers)
        return tuple(f"{large} {operator} {small}" for large, operator, small, _ in rules.steps(state.numbers))

    def optimal_turn(self, state: CountdownState, turns_left: int | None, actions_left: int | None) -> str | None:
        """Return the first combination of a shortest solution, or a whole one; None where the target is not reached."""
        if not self.best_value(state, turns_left, actions_left) or self._is_over(state):
            return None
        if self.settings.single:
            return rules.best_expression(state.numbers, state.target, self.settings.use_all)
        step = rules.best_step(state.numbers, state.target, self.settings.use_all)
        return None if step is None else f"{step[0]} {step[1]} {step[2]}"

    def best_value(self, state: CountdownState, turns_left: int | None, actions_left: int | None) -> float | None:
        """Return 1 where the target is reached within the turns left, else 0."""
        fewest = self._distance(state)
        left = actions_within(turns_left, actions_left, 1)
        if fewest and self.settings.single:
            fewest = 1
        return float(fewest is not None and (left is None or fewest <= left))

    def dead_end(self, state: CountdownState) -> str | None:
        """Return that no combinations reach the target; None where some do."""
        return None if self._distance(state) is not None else "no combinations reach the target"

    def form(self, state: CountdownState) -> bytes | None:
        """Return the bytes of an instance, which are those of all orders of its numbers."""
        return self._key(state)

    def success_bars(self, state: CountdownState) -> tuple[float, float] | None:
        """Return the exact success of random combinations and the best one; None in the single form."""
        if self.settings.single:
            return None
        turns = len(state.numbers) if self.limits.max_turns is None else self.limits.max_turns
        best = self.best_value(state, turns, None) or 0.0
        return rules.random_success(state.numbers, state.target, self.settings.use_all, turns), best

    def teaching(self) -> Teaching | None:
        """Return the demonstrations of the oracle in compact form; None in the single form."""
        if self.settings.single:
            return None
        return replace(taught_by_oracle(obs_type="compact", num_numbers=3), symbols=tuple(map(str, range(MOST + 1))))

    def _distance(self, state: CountdownState) -> int | None:
        return rules.distance(state.numbers, state.target, self.settings.use_all)

    def _is_over(self, state: CountdownState) -> bool:
        is_answered = self.settings.single and bool(state.last)
        return is_answered or self.is_success(state) or next(rules.steps(state.numbers), None) is None

    def _key(self, state: CountdownState) -> bytes:
        return encode((tuple(sorted(state.numbers)), state.target))


def _given(options: dict[str, Any]) -> CountdownState:
    numbers, target = options.get("numbers", ()), options.get("target")
    given = (*numbers, target) if isinstance(numbers, list | tuple) else ()
    if not 3 <= len(given) - 1 <= 6 or not all(type(number) is int and 0 <= number <= MOST for number in given):
        raise ConfigError(f"wanted 3 to 6 numbers and a target from 0 to {MOST}, got {numbers!r} and {target!r}")
    return CountdownState(tuple(sorted(given[:-1])), given[-1])


def _random_result(numbers: tuple[int, ...], use_all: bool, rng: np.random.Generator) -> int:
    """Return the result of random combinations of all numbers, or of as many as are drawn."""
    count = 1 if use_all else int(rng.integers(1, len(numbers)))
    result = -1
    while len(numbers) > count and (choices := list(rules.steps(numbers))):
        step = choices[int(rng.integers(len(choices)))]
        numbers, result = rules.after(numbers, step), step[3]
    return result if len(numbers) == count else -1


def make(*, preset: str = "default", render_mode: str | None = None, **settings: Any) -> CountdownEnv:
    """Make the environment behind ``gym.make("tsr/Countdown-v0", ...)``; `CountdownEnv` documents the keywords.

    Raises:
        ConfigError: A setting is unknown or impossible.
    """
    config = settings_from(CountdownSettings, PRESETS, preset, settings, discrete={}, arrays=())
    return CountdownEnv(config, render_mode=render_mode)
