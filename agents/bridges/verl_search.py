"""Searches in a worker of verl, one per prompt, with verl's servers as the host of the engine; does not import verl."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym.agents.bridges.rows import TrainedRow, drawn_evenly, trained_rows
from tsr_gym.agents.episodes.collect import Collector, Place
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.learning.advantages.choose_estimator import choose_estimator
from tsr_gym.agents.learning.estimators import Estimator
from tsr_gym.agents.models.language_model import LanguageModel
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.engine import Capabilities, Completion
from tsr_gym.agents.policies.vllm_engine import Asked, VllmEngine
from tsr_gym.errors import ConfigError, EngineFailed, Unsupported


@dataclass(frozen=True, slots=True)
class ServedByVerl:
    """The servers of a run, for the search of one prompt.

    A search runs in a thread; its requests are passed to the event loop of the client.

    Attributes:
        client: An ``LLMServerClient`` of verl.
        uid: Of the prompt; requests with the same id go to the same server and its prefix cache.
        events: The event loop of the client.
        context: Longest sequence.
        vocabulary: Number of tokens.
        versions: Of the weights that sampled so far.
    """

    client: Any
    uid: str
    events: asyncio.AbstractEventLoop
    context: int
    vocabulary: int
    versions: set[int] = field(default_factory=set)

    def engine(self, *, stop_ids: Sequence[int], max_tokens: int, temperature: float) -> VllmEngine:
        """Return an engine that samples from the servers."""
        return VllmEngine(self, tuple(stop_ids), max_tokens=max_tokens, temperature=temperature)

    @property
    def capabilities(self) -> Capabilities:
        """Samples do not repeat, and verl updates the weights."""
        return Capabilities(seeds=False, company=False, weights=False, abort=False)

    @property
    def weight_version(self) -> int:
        """The newest version that sampled."""
        return max(self.versions, default=0)

    def sample(self, asked: Sequence[Asked], settings: dict[str, Any]) -> list[Completion]:
        """Return a completion for each, in order."""

        async def together() -> list[Completion]:
            return list(await asyncio.gather(*(self._ask(request, settings) for request in asked)))

        return asyncio.run_coroutine_threadsafe(together(), self.events).result()

    def load_weights(self, weights: Iterable[tuple[str, Any]], *, version: int | None = None) -> None:
        """Raise: verl's trainer updates its servers itself."""
        raise Unsupported("verl's trainer gives its servers their weights: wanted no load_weights")

    def load_adapter(self, folder: Path, *, version: int) -> None:
        """Raise: verl's trainer updates its servers itself."""
        raise Unsupported("verl's trainer gives its servers their weights: wanted no load_adapter")

    def abort(self) -> None:
        """Raise: verl's trainer pauses its servers itself."""
        raise Unsupported("verl's trainer pauses its servers: wanted no abort")

    async def _ask(self, request: Asked, settings: dict[str, Any]) -> Completion:
        # In verl, True requests the log-probabilities of the sampled tokens.
        sampling = {**settings, "max_tokens": request.max_tokens, "logprobs": True}
        prompt_ids = list(request.prompt)
        output = await self.client.generate(request_id=self.uid, prompt_ids=prompt_ids, sampling_params=sampling)
        ids, logprobs = tuple(output.token_ids), tuple(output.log_probs or ())
        if len(logprobs) != len(ids):
            raise EngineFailed(f"verl's server gave {len(logprobs)} log-probabilities for {len(ids)} tokens")
        # The weights may change during a request.
        steps = [output.extra_fields.get(name) for name in ("min_global_steps", "max_global_steps")]
        self.versions.update(int(step) for step in steps if step is not None)
        reason = "abort" if output.stop_reason == "aborted" else "stop"
        return Completion(ids, logprobs, reason)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The arguments of an agent loop, see `tsr_gym.agents.bridges.verl.tsr_agent_loop`."""

    env: str
    search: SearchConfig
    estimator: str | None
    task: TaskConfig
    model: ModelConfig
    seed: int


class Harvest(NamedTuple):
    """The result of the search of a prompt.

    Attributes:
        trajectories: The rows of each trajectory.
        versions: Oldest and newest weights that sampled; the prompt's step where servers do not report them.
    """

    trajectories: list[list[TrainedRow]]
    versions: tuple[int, int]


class Searches:
    """The searches of a worker: one per prompt, shared by its sessions; environments are reused.

    Args:
        settings: Of the agent loop.
    """

    def __init__(self, settings: LoopSettings) -> None:
        self.settings = settings
        bound = None if settings.estimator is None else choose_estimator(settings.estimator, critic=False)
        self.estimator: Estimator | None = None if bound is None else bound.estimator
        self._harvests: dict[str, asyncio.Future[Harvest]] = {}
        self._requests: Counter[str] = Counter()
        self._idle: dict[bool, list[EnvPool]] = {False: [], True: []}

    async def of(self, host: ServedByVerl, policy: LanguageModel, size: int, temperature: float, row: Any) -> Harvest:
        """Return the result of the search of a prompt, for one of its `size` sessions; the first session begins it.

        Args:
            host: verl's servers.
            policy: Tokenizer, end tokens and card of the model.
            size: Sessions of the prompt.
            temperature: Of sampling.
            row: Of the dataset, with the columns that verl adds.
        """
        uid = host.uid
        if uid not in self._harvests:
            search = partial(self._search, host, policy, size, temperature, row)
            self._harvests[uid] = asyncio.ensure_future(asyncio.to_thread(search))
        self._requests[uid] += 1
        harvest = self._harvests[uid]
        # The last session has asked, so the result can be freed.
        if self._requests[uid] == size:
            del self._harvests[uid], self._requests[uid]
        # A session that is cancelled must not cancel the search of the others.
        return await asyncio.shield(harvest)

    def _search(self, host: ServedByVerl, policy: LanguageModel, size: int, temperature: float, row: Any) -> Harvest:
        settings, evaluation = self.settings, is_evaluation(row)
        task = settings.task.held_out if evaluation else settings.task
        player = ModelPlayer(settings.env, task, settings.model, policy, host)
        split = task.eval_split if evaluation else task.train_split
        idle = self._idle[evaluation]
        # A pool serves one search at a time: searches run in threads, and those that have ended leave theirs to the
        # next.
        pool = idle.pop() if idle else player.pool(split, settings.search)
        chat = player.chat_about(pool.base, temperature=temperature)
        collector = Collector(replace(settings.search, trajectories=size), pool, chat, seed=settings.seed)
        step = int(row["global_steps"])
        place = Place(int(row["extra_info"]["index"]), again=(step,))
        (group,) = (collector.play_at if evaluation else collector.collect_at)([place]).groups
        idle.append(pool)
        (trajectories,) = trained_rows([group], None if evaluation else self.estimator)
        versions = host.versions or {step}
        return Harvest(trajectories, (min(versions), max(versions)))

    def part(self, harvest: Harvest, session: int, size: int, *, evaluation: bool) -> list[TrainedRow]:
        """Return the rows of a session: those of its trajectory, or with an estimator of its part of all trajectories.

        Raises:
            ConfigError: A trajectory has several rows, and verl's estimators take one row per trajectory.
        """
        if self.estimator is not None and not evaluation:
            return [row for rows in harvest.trajectories[session::size] for row in rows]
        tasks = [rows[0].row.task for rows in harvest.trajectories[:1]]
        taken = drawn_evenly(harvest.trajectories, size, self.settings.seed, *tasks)[session : session + 1]
        if not evaluation and any(len(rows) > 1 for rows in taken):
            raise ConfigError(
                "verl's estimators take one row per episode: wanted history=full, or estimator='...' with its trainer"
            )
        return [row for rows in taken for row in rows]


def is_evaluation(row: Mapping[str, Any]) -> bool:
    """Return whether a row of the dataset is played without search."""
    return bool(row["extra_info"].get("evaluation", False))


def output_fields(trained: TrainedRow, longest: int, extra_fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row for verl, as keywords of its ``AgentLoopOutput`` and two further columns.

    The rewards of a row sum to the reward of its whole trajectory: the reward of a turn stands on its last token, and
    the rewards of other rows and of cut tokens stand on the row's last token.

    Args:
        trained: The row.
        longest: Most tokens after the prompt; further tokens are cut off, as in verl's loops.
        extra_fields: Further columns that verl keeps.
    """
    row, start = trained.row, trained.row.starts[0]
    end = min(len(row.input_ids), start + longest)
    rewards = trained.rewards[start:end]
    rewards[-1] += row.total_reward - sum(rewards)
    reward_info = {"acc": float(row.success), "tsr_task": row.task, "tsr_turns": len(row.starts)}
    fields: dict[str, Any] = {
        "prompt_ids": list(row.input_ids[:start]),
        "response_ids": list(row.input_ids[start:end]),
        "response_mask": list(row.completion_mask[start:end]),
        "response_logprobs": list(row.logprobs[start:end]),
        # With a score, verl calls no reward function; `as_dict` writes the rewards of the tokens.
        "reward_score": row.total_reward,
        "token_rewards": rewards,
        "num_turns": 2 * len(row.starts),
        "extra_fields": {**extra_fields, "reward_extra_info": reward_info},
    }
    return fields if trained.advantages is None else {**fields, "token_advantages": trained.advantages[start:end]}
