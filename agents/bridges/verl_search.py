"""verl's servers as the host of an engine, asked from a thread that is not that of their loop."""

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
from tsr_gym.agents.policies.vllm_engine import Asked
from tsr_gym.errors import ConfigError, EngineFailed, Unsupported


@dataclass(frozen=True, slots=True)
class ServedByVerl:
    """The servers of a run, for the search of one prompt.

    Attributes:
        client: An ``LLMServerClient`` of verl's.
        uid: Of the prompt; requests with the same one go to the same server and its prefix cache.
        events: The loop that the client lives in.
        context: Longest sequence.
        vocabulary: Number of tokens.
        versions: Of the weights that answered so far.
    """

    client: Any
    uid: str
    events: asyncio.AbstractEventLoop
    context: int
    vocabulary: int
    versions: set[int] = field(default_factory=set)

    @property
    def capabilities(self) -> Capabilities:
        """Samples do not repeat, and weights are verl's own business."""
        return Capabilities(seeds=False, company=False, weights=False, abort=False)

    @property
    def weight_version(self) -> int:
        """The newest version that answered."""
        return max(self.versions, default=0)

    def sample(self, asked: Sequence[Asked], settings: dict[str, Any]) -> list[Completion]:
        """Return a completion for each, in order."""

        async def together() -> list[Completion]:
            return list(await asyncio.gather(*(self._ask(one, settings) for one in asked)))

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

    async def _ask(self, one: Asked, settings: dict[str, Any]) -> Completion:
        # verl asks its server for the log-probability of the sampled token where this is true.
        sampling = {**settings, "max_tokens": one.max_tokens, "logprobs": True}
        said = await self.client.generate(request_id=self.uid, prompt_ids=list(one.prompt), sampling_params=sampling)
        logprobs = said.log_probs or ()
        if len(logprobs) != len(said.token_ids):
            raise EngineFailed(f"verl's server gave {len(logprobs)} log-probabilities for {len(said.token_ids)} tokens")
        known = [said.extra_fields.get(name) for name in ("min_global_steps", "max_global_steps")]
        self.versions.update(int(step) for step in known if step is not None)
        reason = "abort" if said.stop_reason == "aborted" else "stop"
        return Completion(tuple(said.token_ids), tuple(logprobs), reason)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """What an agent loop plays and how, see `tsr_gym.agents.bridges.verl.tsr_agent_loop`."""

    env: str
    search: SearchConfig
    estimator: str | None
    task: TaskConfig
    model: ModelConfig
    seed: int


class Found(NamedTuple):
    """What the search of a prompt brought.

    Attributes:
        trajectories: The rows of each.
        versions: Oldest and newest weights that answered; those of the prompt's step where servers do not say.
    """

    trajectories: list[list[TrainedRow]]
    versions: tuple[int, int]


class Searches:
    """The searches of a worker: one per prompt, however many sessions ask; environments are used again.

    Args:
        settings: Of the agent loop.
    """

    def __init__(self, settings: LoopSettings) -> None:
        self.settings = settings
        chosen = None if settings.estimator is None else choose_estimator(settings.estimator, critic=False)
        self.estimator: Estimator | None = None if chosen is None else chosen.estimator
        self._found: dict[str, asyncio.Future[Found]] = {}
        self._asked: Counter[str] = Counter()
        self._idle: dict[bool, list[EnvPool]] = {False: [], True: []}

    async def of(self, host: ServedByVerl, policy: LanguageModel, size: int, temperature: float, row: Any) -> Found:
        """Return what the search of a prompt brought, for one of its `size` sessions; the first one begins it.

        Args:
            host: verl's servers.
            policy: Tokenizer, end tokens and card of the model.
            size: Sessions of the prompt.
            temperature: Of sampling.
            row: Of the dataset, with what verl adds to it.
        """
        uid = host.uid
        if uid not in self._found:
            search = partial(self._search, host, policy, size, temperature, row)
            self._found[uid] = asyncio.ensure_future(asyncio.to_thread(search))
        self._asked[uid] += 1
        found = self._found[uid]
        if self._asked[uid] == size:
            del self._found[uid], self._asked[uid]
        return await asyncio.shield(found)

    def _search(self, host: ServedByVerl, policy: LanguageModel, size: int, temperature: float, row: Any) -> Found:
        settings, evaluation = self.settings, is_evaluation(row)
        task = settings.task.held_out if evaluation else settings.task
        player = ModelPlayer(settings.env, task, settings.model, policy, host)
        split = task.eval_split if evaluation else task.train_split
        idle = self._idle[evaluation]
        pool = idle.pop() if idle else player.pool(split, settings.search)
        chat = player.chat_about(pool.base, temperature=temperature)
        collector = Collector(replace(settings.search, trajectories=size), pool, chat, seed=settings.seed)
        step = int(row["global_steps"])
        place = Place(int(row["extra_info"]["index"]), again=(step,))
        (group,) = collector.collect_at([place], plainly=evaluation).groups
        idle.append(pool)
        (trajectories,) = trained_rows([group], None if evaluation else self.estimator)
        versions = host.versions or {step}
        return Found(trajectories, (min(versions), max(versions)))

    def part(self, found: Found, session: int, size: int, *, evaluation: bool) -> list[TrainedRow]:
        """Return the rows of one session: of its trajectory, or with an estimator of its part of all.

        Raises:
            ConfigError: A trajectory has several rows, and verl's estimators count one.
        """
        if self.estimator is not None and not evaluation:
            return [row for rows in found.trajectories[session::size] for row in rows]
        tasks = [rows[0].row.task for rows in found.trajectories[:1]]
        taken = drawn_evenly(found.trajectories, size, self.settings.seed, *tasks)[session : session + 1]
        if not evaluation and any(len(rows) > 1 for rows in taken):
            raise ConfigError(
                "verl's estimators know one row per episode: wanted history=full, or estimator='...' with its trainer"
            )
        return [row for rows in taken for row in rows]


def is_evaluation(row: Mapping[str, Any]) -> bool:
    """Return whether a row of the dataset is played without search."""
    return bool(row["extra_info"].get("evaluation", False))


def output_fields(one: TrainedRow, longest: int, extra_fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row for verl, as keywords of its ``AgentLoopOutput`` and of two more.

    The rewards of a row sum to that of its whole trajectory: each turn's stands on its last token, and what was earned
    in other rows, or is cut off, on the row's last token.

    Args:
        one: The row.
        longest: Most tokens after the prompt; what follows is cut off, as verl's own loops do.
        extra_fields: What else verl keeps of it.
    """
    row, start = one.row, one.row.starts[0]
    end = min(len(row.input_ids), start + longest)
    rewards = one.rewards[start:end]
    rewards[-1] += row.total_reward - sum(rewards)
    told = {"acc": float(row.success), "tsr_task": row.task, "tsr_turns": len(row.starts)}
    fields: dict[str, Any] = {
        "prompt_ids": list(row.input_ids[:start]),
        "response_ids": list(row.input_ids[start:end]),
        "response_mask": list(row.mask[start:end]),
        "response_logprobs": list(row.logprobs[start:end]),
        # Set, so that verl asks no reward function; `as_dict` writes the rewards of the tokens.
        "reward_score": row.total_reward,
        "token_rewards": rewards,
        "num_turns": 2 * len(row.starts),
        "extra_fields": {**extra_fields, "reward_extra_info": told},
    }
    return fields if one.advantages is None else {**fields, "token_advantages": one.advantages[start:end]}
