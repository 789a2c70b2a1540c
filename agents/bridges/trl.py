"""TRL: rollouts by search for its GRPOTrainer, and a trainer that learns from this package's advantages.

Written for TRL 1.16. The rollout function needs nothing of TRL's; only `tsr_grpo_trainer` imports it.
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

from tsr_gym.agents.bridges.rows import Row, drawn_evenly, trained_rows
from tsr_gym.agents.episodes.collect import Collected, Collector, Place
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages.choose_estimator import Chosen, choose_estimator
from tsr_gym.agents.models.card import ModelCard
from tsr_gym.agents.models.language_model import LanguageModel
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.errors import ConfigError, shown
from tsr_gym.optional import require
from tsr_gym.registration import env_id
from tsr_gym.text_env import TextEnv

# Column of the advantages; no dataset has one of this name.
ADVANTAGES = "tsr_advantages"
Rollout = Callable[[list[Any], Any], dict[str, Any]]


def task_prompts(instances: Sequence[int]) -> list[dict[str, str]]:
    """Return the rows of a dataset for the trainer: a prompt names its instance, and the environment says the rest.

    Args:
        instances: Numbers of task instances in the sequence that the rollout function's seed decides.
    """
    return [{"prompt": f"instance {number}"} for number in instances]


def env_reward(completions: Sequence[Any], env_reward: Sequence[float | None], **columns: Any) -> list[float | None]:
    """Return the rewards of the environment, as a reward function of TRL's; None for rows that only fill a group."""
    return list(env_reward)


class RowOfTrl(NamedTuple):
    """A row for the trainer.

    Attributes:
        row: Tokens, mask and log-probabilities.
        advantages: Of its tokens after the prompt; None without an estimator.
        reward: Of its episode; None where the row only fills a group, in which nothing is then trained.
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

    Prompts arrive repeated, a group of `num_generations` side by side; each group is one search for as many
    trajectories, on the instance that its prompt names (`task_prompts`). What comes back is exactly what was sampled.
    In evaluation it plays without search.

    Args:
        env: Gymnasium id or short name.
        strategy: With its numbers, such as ``"beam(width=2, branching=4)"``.
        estimator: Whose advantages the rows carry for `tsr_grpo_trainer`, such as ``"tspo"`` or ``"tree_backup"``; they
            are taken over whole groups, before any row is left out. None where TRL's own are wanted.
        task: What is played.
        search: How trajectories come to be, its strategy and their number left aside.
        model: How the model speaks; the temperature is the trainer's.
        card: What the model was made for; None for the one in its folder, where it has one.
        seed: Everything random derives from it, and from the trainer's step.

    Raises:
        ConfigError: A setting is unknown, or the estimator needs a critic.
    """
    wanted = replace(search or SearchConfig(), search=strategy)
    if wanted.naive:
        raise ConfigError(f"groups of TRL have a size of their own: wanted naive=0, got {wanted.naive}")
    chosen = None if estimator is None else choose_estimator(estimator, critic=False)
    return _Rollout(env, wanted, chosen, task or TaskConfig(), model or ModelConfig(), card, seed)


class _Rollout:
    """The rollout function; environments are made at the first call and used again."""

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
            raise ConfigError("searches sample from the trainer's own model: wanted use_vllm=False")
        training = bool(trainer.model.training)
        size = trainer.num_generations if training else trainer.num_generations_eval
        numbers = _groups(prompts, size)
        step, process = int(trainer.state.global_step), int(trainer.accelerator.process_index)
        places = [Place(number, again=(step, process, place)) for place, number in enumerate(numbers)]
        collector = self._collector(trainer, training, size)
        try:
            collector.policy.engine.load_weights(())  # type: ignore[attr-defined]
            collected = collector.collect_at(places, plainly=not training)
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
            if chat.history.turns is not None:
                raise ConfigError("TRL knows one row per episode: wanted history=full, got another one")
            config = replace(self.search, trajectories=size)
            self._collectors[training, size] = Collector(config, pool, chat, seed=self.seed)
        return self._collectors[training, size]

    def _columns(self, collected: Collected, size: int) -> dict[str, Any]:
        rows = [row for group in self._rows(collected.groups) for row in self._cut(group, size)]
        starts = [row.starts[0] for row, *_ in rows]
        pairs = list(zip(rows, starts, strict=True))
        columns: dict[str, Any] = {
            "prompt_ids": [list(one.row.input_ids[:start]) for one, start in pairs],
            "completion_ids": [list(one.row.input_ids[start:]) for one, start in pairs],
            "logprobs": [list(one.row.logprobs[start:]) for one, start in pairs],
            "env_mask": [list(one.row.mask[start:]) for one, start in pairs],
            "env_reward": [one.reward for one in rows],
            "success": [one.row.success for one in rows],
        }
        if self.estimator is not None:
            columns[ADVANTAGES] = [one.advantages for one in rows]
        return columns

    def _rows(self, groups: Sequence[Group]) -> list[list[RowOfTrl]]:
        """Return the rows of each group, with the advantages that its trajectories have among themselves."""
        estimator = None if self.estimator is None else self.estimator.estimator
        found = []
        for trajectories in trained_rows(groups, estimator):
            for parts in trajectories:
                if len(parts) > 1:
                    raise ConfigError(f"TRL knows one row per episode, got {len(parts)}: wanted prompts that only grow")
            found.append([_with(part.row, part.advantages) for (part,) in trajectories])
        return found

    def _cut(self, rows: list[RowOfTrl], size: int) -> list[RowOfTrl]:
        """Return as many rows as a group has: some of more, drawn evenly, or beside fewer some that are not trained."""
        if not rows:
            raise ConfigError("a search brought no tokens: wanted a task that has not ended where it begins")
        taken = drawn_evenly(rows, size, self.seed, rows[0].row.task)
        return taken + [_filling(rows[0])] * (size - len(taken))


def _with(row: Row, advantages: list[float] | None) -> RowOfTrl:
    own = None if advantages is None else advantages[row.starts[0] : len(row.input_ids)]
    return RowOfTrl(row, own, row.total_reward)


def _filling(like: RowOfTrl) -> RowOfTrl:
    """Return a row of which nothing is trained, and which no baseline counts."""
    empty = like.row._replace(mask=(0,) * len(like.row.mask))
    return RowOfTrl(empty, None if like.advantages is None else [0.0] * len(like.advantages), None)


def _groups(prompts: Sequence[Any], size: int) -> list[int]:
    """Return the instance of each group of `size` equal prompts that stand side by side.

    Raises:
        ConfigError: A group is not whole, or a prompt names no instance.
    """
    numbers = []
    for text, equal in groupby(map(_text, prompts)):
        count = sum(1 for _ in equal)
        if count % size:
            raise ConfigError(
                f"wanted whole groups of {size} equal prompts, got {count} of {shown(text)}: make "
                "per_device_train_batch_size * steps_per_generation a multiple of num_generations"
            )
        found = re.findall(r"\d+", text)
        if not found:
            raise ConfigError(f"wanted a prompt that names an instance (task_prompts), got {shown(text)}")
        numbers += [int(found[-1])] * (count // size)
    return numbers


def _text(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else str(prompt[-1]["content"])


@cache
def tsr_grpo_trainer() -> Any:
    """Return a subclass of TRL's GRPOTrainer that learns from the advantages of `tsr_rollout_func`, a token each.

    Everything else is TRL's. Its own advantages, of the reward functions, are computed and logged and not used.

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
            if any(one is None for one in given):
                raise ConfigError("the rows have no advantages: wanted tsr_rollout_func(..., estimator='...')")
            advantages = torch.zeros_like(output["completion_ids"], dtype=torch.float32)
            for index, own in enumerate(given):
                advantages[index, : len(own)] = torch.tensor(own)
            output["advantages"] = advantages
            return output

    return TsrGRPOTrainer


def tsr_environment(env: str, **settings: Any) -> Callable[[], Any]:
    """Return what ``GRPOTrainer(environment_factory=...)`` takes: a callable that makes an environment with a tool.

    A row of the dataset needs the column ``task``, the seed of its instance. The trainer owns the loop: it samples,
    calls the tool and ends an episode, so nothing can be branched; for search use `tsr_rollout_func`.

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
    """One episode at a time; its public methods but `reset` and `get_reward` are tools.

    Args:
        env: An environment of text.
        instructions: What is told before the first observation.
    """

    def __init__(self, env: gym.Env[str, str], instructions: str) -> None:
        self._env = env
        self._instructions = instructions
        self._reward = 0.0
        self._over = True

    def reset(self, task: int = 0, **columns: Any) -> str:
        """Begin the episode of a row, and return the rules and the first observation."""
        observation, _ = self._env.reset(seed=int(task))
        self._reward, self._over = 0.0, False
        return f"{self._instructions}\n\n{observation}"

    def act(self, action: str) -> str:
        """
        Take a turn in the environment.

        Args:
            action: What to do in this turn, in the words of the rules.

        Returns:
            What the environment answers.
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
