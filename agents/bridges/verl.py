"""verl: an agent loop that searches, a trainer that learns from this package's advantages, and estimators by name.

Written for verl 0.9.1 with its V1 trainer, whose workers put rows into a TransferQueue. The sessions of a prompt run in
one worker at the same time; here they share one search. docs/verl.md shows the configuration.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import GenerationConfig

from tsr_gym.agents.bridges.verl_search import LoopSettings, Searches, ServedByVerl, is_evaluation, output_fields
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.learning.advantages.choose_estimator import choose_estimator
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.models.card import ModelCard
from tsr_gym.agents.models.language_model import LanguageModel
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.errors import ConfigError
from tsr_gym.optional import require

# Column of the advantages in the TransferQueue, and the name of the trainer that reads it.
ADVANTAGES = "tsr_advantages"
TRAINER = "tsr_sync"
# Estimators that need no more than verl hands to one: rewards and masks of tokens, and groups. It does not tell which
# trajectories solved their task, nor trees or states.
ESTIMATORS = {
    **{f"tsr_{name}": name for name in ("grpo", "dr_grpo", "rloo", "reinforce_pp", "mt_grpo")},
    "tsr_tspo": "tspo(groups='all')",
}
VerlEstimator = Callable[..., tuple[Tensor, Tensor]]


def task_rows(instances: Iterable[int], *, agent: str, evaluation: bool = False) -> list[dict[str, Any]]:
    """Return the rows of a dataset for verl, to be written as Parquet: each names its instance and its agent loop.

    Args:
        instances: Numbers of task instances in the sequence that the agent loop's seed decides.
        agent: Name of the agent loop in the file of ``agent_loop_config_path``.
        evaluation: Whether they are held-out instances that are played without search, as ``data.val_files`` are.
    """
    return [
        {
            "prompt": [{"role": "user", "content": f"instance {number}"}],
            "data_source": agent,
            "agent_name": agent,
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": number, "evaluation": evaluation},
        }
        for number in instances
    ]


def tsr_agent_loop(
    *,
    env: str,
    strategy: str = "naive",
    estimator: str | None = None,
    task: Mapping[str, Any] | None = None,
    search: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    seed: int = 0,
    name: str = "",
    **of_verl: Any,
) -> Any:
    """Return the agent loop of one session: the ``_target_`` of an entry in the file of ``agent_loop_config_path``.

    The sessions of a prompt share one search for as many trajectories. Each returns one of them or, with an estimator,
    its part of all that were found, with the advantages that these have among themselves, from which the trainer
    `TRAINER` learns. Rows of evaluation are played without search.

    Args:
        env: Gymnasium id or short name.
        strategy: With its numbers, such as ``"beam(width=2, branching=4)"``.
        estimator: Whose advantages the rows carry; None where an estimator of verl's or of `ESTIMATORS` is wanted.
        task: Fields of `TaskConfig`.
        search: Fields of `SearchConfig`, its strategy and the number of trajectories left aside.
        model: Fields of `ModelConfig` that say how the model speaks; the temperature is verl's.
        seed: Instances, dice and ties derive from it; samples are those of verl's servers.
        name: Of the entry.
        of_verl: What verl hands to every agent loop.

    Raises:
        ConfigError: A setting is unknown, or the estimator needs a critic.
        MissingExtra: verl is not installed.
    """
    wanted: SearchConfig = _section(SearchConfig, {**(search or {}), "search": strategy})
    if wanted.naive:
        raise ConfigError(f"groups of verl have a size of their own: wanted naive=0, got {wanted.naive}")
    played, spoken = _section(TaskConfig, task or {}), _section(ModelConfig, model or {})
    return _kinds().loop(_searches(LoopSettings(env, wanted, estimator, played, spoken, seed)), **of_verl)


def _section(kind: Any, fields: Mapping[str, Any]) -> Any:
    # Lists of a YAML file are tuples in a section.
    plain = {key: one if isinstance(one, str | int | float | None) else tuple(one) for key, one in fields.items()}
    try:
        return kind(**plain)
    except TypeError as error:
        raise ConfigError(f"{kind.__name__}: {error}") from error


@cache
def _searches(settings: LoopSettings) -> Searches:
    return Searches(settings)


class _Ends(NamedTuple):
    """A model of which only its end tokens are known here."""

    generation_config: Any


@cache
def _served(path: str, tokenizer: Any) -> LanguageModel:
    """Return what is known of the model that verl's servers hold: its end tokens, its tokenizer and its card."""
    try:
        ends = GenerationConfig.from_pretrained(path)
    except OSError:
        ends = GenerationConfig()  # type: ignore[no-untyped-call]
    return LanguageModel(_Ends(ends), tokenizer, ModelCard.load(Path(path)))


def _sessions(config: Any, sampling: Mapping[str, Any], row: Mapping[str, Any], *, given: bool) -> int:
    """Return how many sessions a prompt has; raise ConfigError where a search cannot be in this configuration."""
    rollout = config.actor_rollout_ref.rollout
    if rollout.name != "vllm":
        raise ConfigError(f"searches ask verl's vLLM servers: wanted rollout.name=vllm, got {rollout.name}")
    if sampling["top_p"] != 1 or sampling["top_k"] not in (-1, 0):
        cut = {name: sampling[name] for name in ("top_p", "top_k")}
        raise ConfigError(f"log-probabilities are of the whole distribution: wanted top_p=1 and top_k=-1, got {cut}")
    if "session_id" not in row:
        raise ConfigError("the sessions of a prompt share a search in verl's V1 trainer: wanted trainer.use_v1=true")
    mode = config.trainer.v1.trainer_mode
    if given and mode != TRAINER:
        raise ConfigError(f"rows have advantages of their own: wanted trainer.v1.trainer_mode={TRAINER}, got {mode}")
    size = int(rollout.val_kwargs.n if is_evaluation(row) else rollout.n)
    if row["session_id"] >= size:
        raise ConfigError(f"wanted as many sessions as rollout.n says, {size}, got number {row['session_id']}")
    return size


class _Kinds(NamedTuple):
    """Subclasses of verl's own classes.

    Attributes:
        loop: The agent loop.
        output: What it returns.
    """

    loop: Any
    output: Any


@cache
def _kinds() -> _Kinds:
    require("verl", "verl")
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

    class SearchedOutput(AgentLoopOutput):  # type: ignore[misc, unused-ignore]
        """A row whose rewards and advantages stand beside its tokens."""

        token_rewards: list[float]
        token_advantages: list[float] | None = None

        def as_dict(self) -> dict[str, Any]:
            """Return the columns of the row, whatever reward verl gave it: it gives all of a session the last one's."""
            columns: dict[str, Any] = super().as_dict()
            columns["rm_scores"] = torch.tensor(columns.pop("token_rewards"), dtype=torch.float32)
            given = columns.pop("token_advantages", None)
            if given is not None:
                columns[ADVANTAGES] = torch.tensor(given, dtype=torch.float32)
            return columns

    class SearchLoop(AgentLoopBase):  # type: ignore[misc, unused-ignore]
        """The agent loop of a session."""

        def __init__(self, searches: Searches, **of_verl: Any) -> None:
            super().__init__(**of_verl)
            self.searches = searches

        async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[Any]:
            """Return the rows of this session; none where the search brought fewer trajectories than sessions."""
            evaluation = is_evaluation(row)
            given = self.searches.estimator is not None and not evaluation
            size = _sessions(self.config, sampling_params, row, given=given)
            rollout = self.rollout_config
            context = int(rollout.max_model_len or rollout.prompt_length + rollout.response_length)
            events = asyncio.get_running_loop()
            host = ServedByVerl(self.server_manager, row["uid"], events, context, len(self.tokenizer))
            policy = _served(str(self.config.actor_rollout_ref.model.path), self.tokenizer)
            found = await self.searches.of(host, policy, size, float(sampling_params["temperature"]), row)
            part = self.searches.part(found, int(row["session_id"]), size, evaluation=evaluation)
            fields = {"min_global_steps": found.versions[0], "max_global_steps": found.versions[1]}
            longest = int(rollout.response_length)
            return [SearchedOutput(metrics=AgentLoopMetrics(), **output_fields(one, longest, fields)) for one in part]

    return _Kinds(SearchLoop, SearchedOutput)


def tensor_estimator(text: str) -> VerlEstimator:
    """Return an estimator of this package in the form of verl's, which knows rewards, masks and groups alone.

    A turn is a run of ones in a mask; its reward is what stands on it and up to the next one.

    Args:
        text: One of `tsr_gym.agents.learning.advantages` with its numbers, which needs no critic, trees or states.
    """
    chosen = choose_estimator(text, critic=False).estimator

    def estimator(
        token_level_rewards: Tensor, response_mask: Tensor, index: Sequence[Any], config: Any = None, **more: Any
    ) -> tuple[Tensor, Tensor]:
        """Return advantages and returns `[B, T]`."""
        advantages = torch.zeros_like(token_level_rewards, dtype=torch.float32)
        numbers = sorted(range(len(index)), key=lambda number: str(index[number]))
        said = [number for number in numbers if response_mask[number].any()]
        groups = []
        for task, (_, members) in enumerate(groupby(said, key=lambda number: str(index[number]))):
            turns = [tuple(_turns(response_mask[one].tolist(), token_level_rewards[one].tolist())) for one in members]
            groups.append(Group(task, tuple(Trajectory(own, False, 0.0, "naive") for own in turns)))
        if groups:
            length = advantages.shape[1]
            for number, own in zip(said, chosen(collate(groups)), strict=True):
                # The first place of a row is that of a prompt.
                advantages[number, : len(own) - 1] = own[1 : length + 1]
        return advantages, advantages

    return estimator


def _turns(mask: Sequence[int], rewards: Sequence[float]) -> Iterator[Turn]:
    """Yield the turns of a row; numbers of places stand for the ids, behind a prompt of one."""
    starts = [place for place, own in enumerate(mask) if own and not (place and mask[place - 1])]
    for start, following in zip(starts, [*starts[1:], len(mask)], strict=True):
        end = start + sum(map(bool, mask[start:following]))
        ids = tuple(range(start + 1, end + 1))
        yield Turn(tuple(range(start + 1)), ids, (0.0,) * len(ids), sum(rewards[start:following]), True, 1)


@cache
def tsr_trainer() -> Any:
    """Return a subclass of verl's synchronous V1 trainer that learns from the advantages of `tsr_agent_loop`.

    Everything else is verl's. The advantages of ``algorithm.adv_estimator`` are computed and not used.

    Raises:
        MissingExtra: verl is not installed.
    """
    require("verl", "verl")
    import transfer_queue as tq
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    class TsrPPOTrainerSync(PPOTrainerSync):  # type: ignore[misc, unused-ignore]
        """PPOTrainerSync with advantages of tokens that came with the rows."""

        @property
        def trainer_mode(self) -> str:
            """What verl asks for settings and buffers by, whatever the trainer is called."""
            return "sync"

        @trainer_mode.setter
        def trainer_mode(self, name: str) -> None:
            if name != TRAINER:
                raise ConfigError(f"wanted trainer.v1.trainer_mode={TRAINER}, got {name}")

        def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
            batch = super()._compute_advantage(batch, metrics)
            where = {"keys": batch.keys, "partition_id": batch.partition_id}
            data = tq.kv_batch_get(**where, select_fields=["response_mask", ADVANTAGES])
            masks, given = data["response_mask"].unbind(), data[ADVANTAGES].unbind()
            # Rows that only fill a batch have the advantages of the row that they were made of, and an empty mask.
            kept = [own[: len(mask)] * mask for mask, own in zip(masks, given, strict=True)]
            data["advantages"] = torch.nested.as_nested_tensor(kept, layout=torch.jagged)
            return tq.kv_batch_put(**where, fields=data.select("advantages"))

    return TsrPPOTrainerSync


def register_with_verl() -> None:
    """Make verl know `TRAINER` and the names of `ESTIMATORS`; once more changes nothing.

    Raises:
        MissingExtra: verl is not installed.
    """
    require("verl", "verl")
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo.v1 import register_trainer

    for name, text in ESTIMATORS.items():
        if name not in core_algos.ADV_ESTIMATOR_REGISTRY:
            core_algos.register_adv_est(name)(tensor_estimator(text))
    register_trainer(TRAINER)(tsr_trainer())
