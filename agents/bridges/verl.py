"""verl: an agent loop that searches, a trainer that learns from this package's advantages, and estimators by name.

Written for verl 0.9.1 with its V1 trainer, whose workers put rows into a TransferQueue. The sessions of a prompt run in
one worker at the same time and share one search. docs/verl.md shows the configuration.
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
from tsr_gym.agents.models.language_model import LanguageModel
from tsr_gym.agents.models.settings import ModelCard, ModelConfig
from tsr_gym.errors import ConfigError
from tsr_gym.optional import require

# Column of the advantages in the TransferQueue, and the name of the trainer that reads it.
ADVANTAGES = "tsr_advantages"
TRAINER = "tsr_sync"
# Estimators for which the arguments of verl's estimators are enough: rewards and masks of tokens, and groups. These
# contain neither the success of a trajectory nor trees or states.
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

    The sessions of a prompt share one search for as many trajectories. Each session returns one of them. With an
    estimator it returns its part of all harvested trajectories, with advantages computed over all of them, from which
    the trainer `TRAINER` learns. Rows of evaluation are played without search.

    Args:
        env: Gymnasium id or short name.
        strategy: With its numbers, such as ``"beam(width=2, branching=4)"``.
        estimator: Computes the advantages of the rows; None to use an estimator of verl or of `ESTIMATORS`.
        task: Fields of `TaskConfig`.
        search: Fields of `SearchConfig`; the strategy and the number of trajectories are ignored.
        model: Fields of `ModelConfig` for prompt and history; the temperature is verl's.
        seed: Instances, random numbers and ties derive from it; samples are drawn by verl's servers.
        name: Of the entry.
        of_verl: The arguments that verl passes to every agent loop.

    Raises:
        ConfigError: A setting is unknown, or the estimator needs a critic.
        MissingExtra: verl is not installed.
    """
    search_config: SearchConfig = _section(SearchConfig, {**(search or {}), "search": strategy})
    if search_config.naive:
        raise ConfigError(f"verl sets the size of groups: wanted naive=0, got {search_config.naive}")
    task_config, model_config = _section(TaskConfig, task or {}), _section(ModelConfig, model or {})
    settings = LoopSettings(env, search_config, estimator, task_config, model_config, seed)
    return _classes().loop(_searches(settings), **of_verl)


def _section(section: Any, fields: Mapping[str, Any]) -> Any:
    # Lists of a YAML file are tuples in a section.
    plain = {
        key: value if isinstance(value, str | int | float | None) else tuple(value) for key, value in fields.items()
    }
    try:
        return section(**plain)
    except TypeError as error:
        raise ConfigError(f"{section.__name__}: {error}") from error


@cache
def _searches(settings: LoopSettings) -> Searches:
    return Searches(settings)


class _Ends(NamedTuple):
    """A model whose end tokens are known, but whose weights are only in verl's servers."""

    generation_config: Any


@cache
def _served(path: str, tokenizer: Any) -> LanguageModel:
    """Return the end tokens, the tokenizer and the card of the model that verl's servers hold."""
    try:
        ends = GenerationConfig.from_pretrained(path)
    except OSError:
        ends = GenerationConfig()  # type: ignore[no-untyped-call]
    return LanguageModel(_Ends(ends), tokenizer, ModelCard.load(Path(path)))


def _sessions(config: Any, sampling: Mapping[str, Any], row: Mapping[str, Any], *, given: bool) -> int:
    """Return the number of sessions of a prompt; raise ConfigError where the configuration does not allow a search."""
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
        raise ConfigError(f"rows carry advantages: wanted trainer.v1.trainer_mode={TRAINER}, got {mode}")
    size = int(rollout.val_kwargs.n if is_evaluation(row) else rollout.n)
    if row["session_id"] >= size:
        raise ConfigError(f"wanted rollout.n={size} sessions, got number {row['session_id']}")
    return size


class _Classes(NamedTuple):
    """Subclasses of verl's classes.

    Attributes:
        loop: The agent loop.
        output: The row that it returns.
    """

    loop: Any
    output: Any


@cache
def _classes() -> _Classes:
    require("verl", "verl")
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

    class SearchedOutput(AgentLoopOutput):  # type: ignore[misc, unused-ignore]
        """A row with rewards and advantages per token."""

        token_rewards: list[float]
        token_advantages: list[float] | None = None

        def as_dict(self) -> dict[str, Any]:
            """Return the columns of the row, with its rewards per token.

            verl's own rewards are replaced: it gives all rows of a session the reward of the last row.
            """
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
            """Return the rows of this session; none where the search harvested fewer trajectories than sessions."""
            evaluation = is_evaluation(row)
            given = self.searches.estimator is not None and not evaluation
            size = _sessions(self.config, sampling_params, row, given=given)
            rollout = self.rollout_config
            context = int(rollout.max_model_len or rollout.prompt_length + rollout.response_length)
            events = asyncio.get_running_loop()
            host = ServedByVerl(self.server_manager, row["uid"], events, context, len(self.tokenizer))
            policy = _served(str(self.config.actor_rollout_ref.model.path), self.tokenizer)
            harvest = await self.searches.of(host, policy, size, float(sampling_params["temperature"]), row)
            rows = self.searches.part(harvest, int(row["session_id"]), size, evaluation=evaluation)
            steps = {"min_global_steps": harvest.versions[0], "max_global_steps": harvest.versions[1]}
            longest = int(rollout.response_length)
            return [SearchedOutput(metrics=AgentLoopMetrics(), **output_fields(own, longest, steps)) for own in rows]

    return _Classes(SearchLoop, SearchedOutput)


def tensor_estimator(text: str) -> VerlEstimator:
    """Return an estimator of this package in the form of verl's, which has only rewards, masks and groups.

    A turn is a run of ones in a mask; its reward is the sum of the rewards from its start to the start of the next.

    Args:
        text: An estimator of `tsr_gym.agents.learning.advantages` with its numbers that needs no critic, trees or
            states.
    """
    compute = choose_estimator(text, critic=False).estimator

    def estimator(
        token_level_rewards: Tensor, response_mask: Tensor, index: Sequence[Any], config: Any = None, **more: Any
    ) -> tuple[Tensor, Tensor]:
        """Return advantages and returns `[B, T]`."""
        advantages = torch.zeros_like(token_level_rewards, dtype=torch.float32)
        numbers = sorted(range(len(index)), key=lambda number: str(index[number]))
        sampled = [number for number in numbers if response_mask[number].any()]
        groups = []
        for task, (_, members) in enumerate(groupby(sampled, key=lambda number: str(index[number]))):
            turns = [tuple(_turns(response_mask[row].tolist(), token_level_rewards[row].tolist())) for row in members]
            groups.append(Group(task, tuple(Trajectory(own, False, 0.0, "naive") for own in turns)))
        if groups:
            length = advantages.shape[1]
            for number, own in zip(sampled, compute(collate(groups)), strict=True):
                # Each row of the batch begins with the prompt of one token that `_turns` adds.
                advantages[number, : len(own) - 1] = own[1 : length + 1]
        return advantages, advantages

    return estimator


def _turns(mask: Sequence[int], rewards: Sequence[float]) -> Iterator[Turn]:
    """Yield the turns of a row, with indices in place of token ids, which estimators do not read, and a prompt of 1."""
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
            """The name by which verl looks up settings and buffers, independent of the trainer's own name."""
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
            # A row that only fills a batch is a copy of another row, with its advantages and an empty mask.
            kept = [own[: len(mask)] * mask for mask, own in zip(masks, given, strict=True)]
            data["advantages"] = torch.nested.as_nested_tensor(kept, layout=torch.jagged)
            return tq.kv_batch_put(**where, fields=data.select("advantages"))

    return TsrPPOTrainerSync


def register_with_verl() -> None:
    """Register `TRAINER` and `ESTIMATORS` with verl; a second call changes nothing.

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
