"""EnvPool: the environments of a run, built from its configuration and set to task instances."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym

from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.episodes.start_states import StartState
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import bind, parse_settings
from tsr_gym.registration import accepted, env_id
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import Noise, restore, snapshot
from tsr_gym.text_env import TextEnv
from tsr_gym.wrappers import AnswerFormat, DeadEnds, ToolCalls, TreeSearchWrapper
from tsr_gym.wrappers.imagine import Risk
from tsr_gym.wrappers.scorers import choose_scorer
from tsr_gym.wrappers.tool_calls import Family

DeadEndRule = Literal["off", "proven", "limits"]


class EnvPool:
    """As many equal environments as are needed, made once and used again.

    Args:
        env: Gymnasium id or short name.
        settings: Its settings.
        score: Scorer by its call, see `choose_scorer`; ``"reward"`` for none.
        penalty: Price of an answer without the wanted form; environments that read tags themselves set their own.
        think: Whether answers have a thinking part.
        noise: The dice of imagined turns.
        repeats: Draws on which imagined turns are scored.
        risk: Quantile of these scores that counts; None for their mean.
        dead_ends: What searches leave out: nothing, what is proven lost, or also what the limits leave no room for.
        calls: The form of the tool calls that answers are made of; None where they are texts.

    Raises:
        ConfigError: A setting or the scorer is unknown, or the environment is not made of text.
    """

    def __init__(
        self,
        env: str,
        settings: Mapping[str, Any],
        *,
        score: str = "reward",
        penalty: float = 0.1,
        think: bool = True,
        noise: Noise = "fresh",
        repeats: int = 1,
        risk: float | None = None,
        dead_ends: DeadEndRule = "off",
        calls: Family | None = None,
    ) -> None:
        # Checked here, so that the error for an unknown name lists the names that exist.
        accepted(env, settings)
        self._env = env_id(env)
        self._settings = dict(settings)
        self.score = score
        self._scorer = bind(score, choose_scorer).bound
        self._penalty = penalty
        self._think = think
        self._calls = calls
        self._noise = noise
        self._repeats = repeats
        self._dead_ends = dead_ends
        self._risk: Risk = "mean" if risk is None else risk
        self._starts: dict[int, Snapshot] = {}
        self._envs = [self._make()]
        base: Any = self._envs[0].unwrapped
        self.base: TextEnv[Any] = base

    @property
    def made_with(self) -> list[Any]:
        """The settings that determine the starts of its environments."""
        made_with = [self._env, self._settings, self.score, self._penalty, self._think, self._dead_ends]
        return made_with if self._calls is None else [*made_with, self._calls]

    def keep(self, starts: Mapping[int, Snapshot]) -> None:
        """Keep the starts of some instances, by their seeds, which `set` then draws no more."""
        self._starts.update(starts)

    def set(
        self, tasks: Sequence[int], copies: int = 1, starts: Sequence[StartState | None] = ()
    ) -> list[TreeSearchWrapper]:
        """Return environments that stand at the starts of some instances, each instance `copies` times.

        The environments are used again by the next call.

        Args:
            tasks: Seeds of the instances.
            copies: Environments per instance, next to each other.
            starts: StartState at which each instance begins, None for its own start; none for all at their starts.
        """
        while len(self._envs) < len(tasks) * copies:
            self._envs.append(self._make())
        ready = self._envs[: len(tasks) * copies]
        for number, task in enumerate(tasks):
            # Only one copy is reset, which may generate a level; the others get its snapshot.
            first, *others = ready[number * copies : (number + 1) * copies]
            start_state = starts[number] if starts else None
            start = self._starts.get(task) if start_state is None else None
            if start is None:
                first.reset(seed=task, options=None if start_state is None else start_state.start)
                start = snapshot(first)
            else:
                _stand(first, start, task)
            for other in others:
                _stand(other, start, task)
        return ready

    def _make(self) -> TreeSearchWrapper:
        try:
            made = gym.make(self._env, **self._settings)
        except (gym.error.Error, ModuleNotFoundError, TypeError) as error:
            raise ConfigError(f"{self._env} cannot be made with {self._settings}: {error}") from error
        base = made.unwrapped
        if not isinstance(base, TextEnv):
            made.close()
            raise ConfigError(
                f"wanted an environment of text (a tsr_gym.TextEnv), {self._env} is a {type(base).__name__}"
            )
        # The order is fixed: a scorer sees the parsed action and the penalised reward, and dead ends are marked below
        # it.
        env: gym.Env[str, str] = made
        if self._calls is not None:
            env = ToolCalls(made, penalty=self._penalty, family=self._calls)
        elif not base.reads_tags:
            env = AnswerFormat(made, penalty=self._penalty, think=self._think)
        if self._dead_ends != "off":
            env = DeadEnds(env, limits=self._dead_ends == "limits")
        try:
            env = self._scorer(env)
        except TypeError as error:
            raise ConfigError(f"the scorer {self.score} cannot be made: {error}") from error
        return TreeSearchWrapper(env, noise=self._noise, repeats=self._repeats, risk=self._risk)


def _stand(env: TreeSearchWrapper, start: Snapshot, task: int) -> None:
    """Put an environment at the start of an instance."""
    if not env.started:
        # Wrappers need a reset before `restore`. A reset into the snapshot generates no level, which can be slow.
        env.reset(seed=task, options={"snapshot": start})
    restore(env, start)


def task_pool(
    env: str,
    task: TaskConfig,
    split: str | None,
    search: SearchConfig | None = None,
    *,
    fixed: Mapping[str, Any] | None = None,
    think: bool = True,
    calls: Family | None = None,
) -> EnvPool:
    """Return the environments that a configuration asks for.

    Args:
        env: Gymnasium id, short name or ``package.module:Id``.
        task: What is played.
        split: Instances; None or ``"none"`` for all, and ignored where the environment has no splits.
        search: Whose dice it has; plain play by default.
        fixed: Settings that a model was made for; those of `task` win.
        think: Whether answers have a thinking part.
        calls: The form of the tool calls that answers are made of; None where they are texts.

    Raises:
        ConfigError: The environment, a setting or the scorer is unknown, or the environment is not made of text.
    """
    search = search or SearchConfig()
    own = dict(fixed or {}) | parse_settings(task.env_set)
    return EnvPool(
        env,
        task_settings(env, task.preset, split) | own,
        score=task.score,
        penalty=task.penalty,
        think=think,
        noise=search.noise,
        repeats=search.repeats,
        risk=search.risk,
        dead_ends=search.dead_ends,
        calls=calls,
    )


def task_settings(env: str, preset: str, split: str | None) -> dict[str, Any]:
    """Return preset and split as settings, each where it is given and the environment's constructor takes it.

    Raises:
        ConfigError: There is no such environment, or it has no presets and one is wanted other than the default.
    """
    given = {"preset": preset, "split": split}
    given = {name: value for name, value in given.items() if value is not None and value.lower() != "none"}
    taken = accepted(env, given)
    if "preset" in given.keys() - taken.keys() and preset != TaskConfig().preset:
        raise ConfigError(f"{env} has no presets, got preset={preset!r}: leave it out")
    return taken
