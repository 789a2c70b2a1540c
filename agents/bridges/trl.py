"""TRL: rollouts by search for its GRPOTrainer, a trainer that learns from this package's advantages, and a tool.

Written for TRL 1.16. The rollout function does not import TRL; only `tsr_grpo_trainer` does.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import torch

from tsr_gym.agents.bridges.audit import IGNORED
from tsr_gym.agents.bridges.rows import Row, drawn_evenly, trained_rows
from tsr_gym.agents.episodes.collect import Collected, Collector, Place
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages.choose_estimator import Chosen, choose_estimator
from tsr_gym.agents.models.language_model import LanguageModel
from tsr_gym.agents.models.settings import ModelCard, ModelConfig
from tsr_gym.agents.strategies import choose_strategy
from tsr_gym.errors import ConfigError, shown
from tsr_gym.keywords import bind
from tsr_gym.optional import require
from tsr_gym.registration import env_id
from tsr_gym.text_env import TextEnv

# Column of the advantages, with a name that no dataset uses.
ADVANTAGES = "tsr_advantages"
Rollout = Callable[[list[Any], Any], dict[str, Any]]


def task_prompts(instances: Sequence[int]) -> list[dict[str, str]]:
    """Return the rows of a dataset for the trainer: a prompt names its instance, the environment supplies the text.

    Args:
        instances: Numbers of task instances in the sequence that the rollout function's seed decides.
    """
    return [{"prompt": f"instance {number}"} for number in instances]


def env_reward(completions: Sequence[Any], env_reward: Sequence[float | None], **columns: Any) -> list[float | None]:
    """Return the rewards of the environment, as a TRL reward function; None for rows that only fill a group."""
    return list(env_reward)


class RowOfTrl(NamedTuple):
    """A row for the trainer.

    Attributes:
        row: Tokens, mask and log-probabilities.
        advantages: Of its tokens after the prompt; None without an estimator.
        reward: Of its episode; None for a row that only fills a group and trains no token.
    """

    row: Row
    advantages: list[float] | None
    reward: float | None


def tsr_rollout_func(
    env: str,
    strategy: str = "naive",
    *,
    estimator: str | None = None,
    task: TaskConfig | None = None,
    search: SearchConfig | None = None,
    model: ModelConfig | None = None,
    card: ModelCard | None = None,
    seed: int = 0,
) -> Rollout:
    """Return a function for ``GRPOTrainer(rollout_func=...)`` that plays and searches with the trainer's model.

    TRL repeats each prompt `num_generations` times; each such group is one search for as many trajectories, on the
    instance that its prompt names (`task_prompts`). The rows hold exactly the sampled tokens. In evaluation it plays
    without search.

    Args:
        env: Gymnasium id or short name.
        strategy: With its numbers, such as ``"beam(width=2, branching=4)"``.
        estimator: Computes the advantages of the rows for `tsr_grpo_trainer`, such as ``"tspo"`` or ``"tree_backup"``,
            over whole groups, before any row is left out. None to use TRL's own advantages.
        task: Settings of the environment.
        search: Settings of the search; its strategy and its number of trajectories are ignored.
        model: Prompt and history; the temperature is the trainer's.
        card: The model's card; None for the card in its folder, if it has one.
        seed: All randomness derives from it and from the trainer's step.

    Raises:
        ConfigError: A setting is unknown, or the estimator needs a critic.
    """
    config = replace(search or SearchConfig(), search=bind(strategy, choose_strategy))
    if config.naive:
        raise ConfigError(f"TRL sets the size of groups: wanted naive=0, got {config.naive}")
    bound = None if estimator is None else choose_estimator(estimator, critic=False)
    return _Rollout(env, config, bound, task or TaskConfig(), model or ModelConfig(), card, seed)


class _Rollout:
    """The rollout function; environments are made at the first call and reused."""

    def __init__(
        self,
        env: str,
        search: SearchConfig,
        estimator: Chosen | None,
        task: TaskConfig,
        model: ModelConfig,
        card: ModelCard | None,
        seed: int,
    ) -> None:
        self.env, self.search, self.estimator = env, search, estimator
        self.task, self.model, self.card, self.seed = task, model, card, seed
        self._collectors: dict[tuple[bool, int], Collector] = {}

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """Return a row for each prompt, in their order, in the form of TRL's `RolloutFunc`."""
        if trainer.use_vllm:
            raise ConfigError("searches sample from the trainer's model in this process: wanted use_vllm=False")
        training = bool(trainer.model.training)
        size = trainer.num_generations if training else trainer.num_generations_eval
        numbers = _groups(prompts, size)
        step, process = int(trainer.state.global_step), int(trainer.accelerator.process_index)
        places = [Place(number, again=(step, process, place)) for place, number in enumerate(numbers)]
        collector = self._collector(trainer, training, size)
        try:
            # The trainer has changed the weights in place. Loading none makes the engine forget keys and values of the
            # old ones.
            collector.policy.engine.load_weights(())  # type: ignore[attr-defined]
            collected = (collector.collect_at if training else collector.play_at)(places)
        finally:
            trainer.model.train(training)
        return self._columns(collected, size)

    def _collector(self, trainer: Any, training: bool, size: int) -> Collector:
        if (training, size) not in self._collectors:
            tokenizer = trainer.processing_class
            card = self.card or ModelCard.load(Path(str(trainer.model.config._name_or_path)))
            policy = LanguageModel(trainer.model, tokenizer, card)
            task = self.task if training else self.task.held_out
            player = ModelPlayer(self.env, task, self.model, policy)
            pool = player.pool(task.train_split if training else task.eval_split, self.search)
            chat = player.chat_about(pool.base, temperature=float(trainer.temperature))
            if not chat.history.grows:
                raise ConfigError("TRL has one row per episode: wanted history=full, got another history")
            config = replace(self.search, trajectories=size)
            self._collectors[training, size] = Collector(config, pool, chat, seed=self.seed)
        return self._collectors[training, size]

    def _columns(self, collected: Collected, size: int) -> dict[str, Any]:
        rows = [row for group in self._rows(collected.groups) for row in self._cut(group, size)]
        starts = [row.starts[0] for row, *_ in rows]
        pairs = list(zip(rows, starts, strict=True))
        columns: dict[str, Any] = {
            "prompt_ids": [list(trl_row.row.input_ids[:start]) for trl_row, start in pairs],
            "completion_ids": [list(trl_row.row.input_ids[start:]) for trl_row, start in pairs],
            "logprobs": [list(trl_row.row.logprobs[start:]) for trl_row, start in pairs],
            "env_mask": [list(trl_row.row.completion_mask[start:]) for trl_row, start in pairs],
            "env_reward": [row.reward for row in rows],
            "success": [trl_row.row.success for trl_row in rows],
        }
        if self.estimator is not None:
            columns[ADVANTAGES] = [row.advantages for row in rows]
        return columns

    def _rows(self, groups: Sequence[Group]) -> list[list[RowOfTrl]]:
        """Return the rows of each group, with advantages computed within the group."""
        estimator = None if self.estimator is None else self.estimator.estimator
        rows_by_group = []
        for trajectories in trained_rows(groups, estimator):
            for parts in trajectories:
                if len(parts) > 1:
                    raise ConfigError(f"TRL has one row per episode, got {len(parts)}: wanted prompts that only grow")
            rows_by_group.append([_with(part.row, part.advantages) for (part,) in trajectories])
        return rows_by_group

    def _cut(self, rows: list[RowOfTrl], size: int) -> list[RowOfTrl]:
        """Return `size` rows: a uniform draw from more rows, or fewer rows filled up with rows that train no token."""
        if not rows:
            raise ConfigError("a search sampled no tokens: wanted a task that is not over at its start")
        taken = drawn_evenly(rows, size, self.seed, rows[0].row.task)
        return taken + [_filling(rows[0])] * (size - len(taken))


def _with(row: Row, advantages: list[float] | None) -> RowOfTrl:
    own = None if advantages is None else advantages[row.starts[0] : len(row.input_ids)]
    return RowOfTrl(row, own, row.total_reward)


def _filling(like: RowOfTrl) -> RowOfTrl:
    """Return a row that trains no token and that no baseline counts."""
    size = len(like.row.input_ids)
    empty = like.row._replace(labels=(IGNORED,) * size, completion_mask=(0,) * size)
    return RowOfTrl(empty, None if like.advantages is None else [0.0] * len(like.advantages), None)


def _groups(prompts: Sequence[Any], size: int) -> list[int]:
    """Return the instance of each group of `size` equal, adjacent prompts."""
    numbers = []
    for text, equal in groupby(map(_text, prompts)):
        count = sum(1 for _ in equal)
        if count % size:
            raise ConfigError(
                f"wanted whole groups of {size} equal prompts, got {count} of {shown(text)}: make "
                "per_device_train_batch_size * steps_per_generation a multiple of num_generations"
            )
        digits = re.findall(r"\d+", text)
        if not digits:
            raise ConfigError(f"wanted a prompt that names an instance (task_prompts), got {shown(text)}")
        numbers += [int(digits[-1])] * (count // size)
    return numbers


def _text(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else str(prompt[-1]["content"])


@cache
def tsr_grpo_trainer() -> Any:
    """Return a subclass of TRL's GRPOTrainer that learns from the advantages per token of `tsr_rollout_func`.

    Everything else is TRL's. TRL still computes and logs its advantages from the reward functions, but does not use
    them.

    Raises:
        MissingExtra: TRL is not installed.
    """
    require("trl", "trl")
    from trl import GRPOTrainer  # type: ignore[import-not-found, unused-ignore]

    class TsrGRPOTrainer(GRPOTrainer):  # type: ignore[misc, unused-ignore]
        """GRPOTrainer with advantages `[B, T]`."""

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            output: dict[str, Any] = super()._generate_and_score_completions(inputs)
            given: list[Any] = [row.get(ADVANTAGES) for row in inputs]
            if any(advantages is None for advantages in given):
                raise ConfigError("the rows have no advantages: wanted tsr_rollout_func(..., estimator='...')")
            advantages = torch.zeros_like(output["completion_ids"], dtype=torch.float32)
            for index, own in enumerate(given):
                advantages[index, : len(own)] = torch.tensor(own)
            output["advantages"] = advantages
            return output

    return TsrGRPOTrainer


def tsr_environment(env: str, **settings: Any) -> Callable[[], Any]:
    """Return a callable for ``GRPOTrainer(environment_factory=...)`` that makes an environment with a tool.

    A row of the dataset needs the column ``task``, the seed of its instance. The trainer owns the loop: it samples,
    calls the tool and ends an episode, so a search cannot branch; for search use `tsr_rollout_func`.

    Args:
        env: Gymnasium id or short name of an environment of text.
        settings: Of the environment.

    Raises:
        ConfigError: The environment is not made of text.
    """
    name = env_id(env)
    base = gym.make(name, **settings).unwrapped
    if not isinstance(base, TextEnv):
        raise ConfigError(f"wanted an environment of text (a tsr_gym.TextEnv), {name} is a {type(base).__name__}")

    def make() -> ToolEnvironment:
        return ToolEnvironment(gym.make(name, **settings), base.instructions)

    return make


class ToolEnvironment:
    """One episode at a time; its public methods except `reset` and `get_reward` are tools.

    Args:
        env: An environment of text.
        instructions: The rules, which stand before the first observation.
    """

    def __init__(self, env: gym.Env[str, str], instructions: str) -> None:
        self._env = env
        self._instructions = instructions
        self._reward = 0.0
        self._over = True

    def reset(self, task: int = 0, **columns: Any) -> str:
        """Begin the episode of a row; return the rules and the first observation."""
        observation, _ = self._env.reset(seed=int(task))
        self._reward, self._over = 0.0, False
        return f"{self._instructions}\n\n{observation}"

    def act(self, action: str) -> str:
        """
        Take a turn in the environment.

        Args:
            action: The action of this turn, in the form that the rules state.

        Returns:
            The next observation.
        """
        if self._over:
            return "The episode is over."
        observation, reward, terminated, truncated, _ = self._env.step(action)
        self._reward += float(reward)
        self._over = terminated or truncated
        return f"{observation}\n\nThe episode is over." if self._over else observation

    def get_reward(self) -> float:
        """Return the sum of the rewards of the episode."""
        return self._reward
