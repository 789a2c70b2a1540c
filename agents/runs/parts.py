"""Parts: what a run consists of, built from its configuration: policy, engine, critic, rater, learner, collector."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.collect import Collector
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.play import HeldOut
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.models.critic import Critic
from tsr_gym.agents.models.language_model import (
    LanguageModel,
    frozen_reference,
    load_critic,
    load_policy,
    pick_autocast,
    pick_device,
    policy_host,
    restore_adapter,
)
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.policies.engine import Host
from tsr_gym.agents.processes import Processes
from tsr_gym.agents.raters import goes_by, make_rater
from tsr_gym.agents.runs.workers.on_ray import WorkerConfig
from tsr_gym.agents.runs.workers.remote_collector import RemoteCollector
from tsr_gym.agents.runs.workers.worker import files_of
from tsr_gym.errors import ConfigError
from tsr_gym.tree import Rater

# Folder of a run that holds the model that it began with, for a KL term and for fits that begin there.
FIRST = "reference"


class Parts(NamedTuple):
    """The parts of a run.

    Attributes:
        policy: The model that is trained, with its tokenizer and card.
        host: Copy of the model that is sampled from; None if the engine samples from the learner's own model, or
            workers of Ray do it.
        chat: Policy of plain play and of searches, over the engine that samples from `host` or from the model.
        searcher: Policy of searches at another temperature, None if there is none.
        held_out: Held-out instances of the evaluations.
        eval_chat: Policy of the evaluations.
        learner: Trains the model.
        collector: Searches instances, in this process or in workers of Ray.
    """

    policy: LanguageModel
    host: Host | None
    chat: ChatPolicy
    searcher: ChatPolicy | None
    held_out: HeldOut
    eval_chat: ChatPolicy
    learner: Learner
    collector: Collector | RemoteCollector

    @property
    def remote(self) -> RemoteCollector | None:
        """The collector if workers of Ray search and evaluate, else None."""
        return self.collector if isinstance(self.collector, RemoteCollector) else None


def build_parts(
    config: TrainConfig, folder: Path, model_dir: Path, processes: Processes, workers: WorkerConfig
) -> Parts:
    """Build the parts of a run.

    Args:
        config: All settings.
        folder: Folder of the run.
        model_dir: Folder of the language model to begin with; if the run is resumed, that of its checkpoint.
        processes: Processes that train together.
        workers: Where to search.

    Raises:
        ConfigError: The settings exclude each other with this number of processes or with workers.
    """
    if config.store.fit_passes and processes.size > 1:
        raise ConfigError(f"a single process fits to solutions: wanted fit_passes=0, got {processes.size} processes")
    if processes.size > 1 or config.learn.offload:
        config = _without_trie(config)
    device = pick_device(config.model.device)
    policy = load_policy(model_dir, device=device, lora=config.lora)
    is_resumed = folder in model_dir.parents
    if is_resumed:
        # The model of a checkpoint has its adapter merged. This separates them again, so that the adapter stays
        # relative to the weights that the run began with.
        restore_adapter(policy.model, model_dir)
    host = _host(config, policy, model_dir, processes, workers)
    player = ModelPlayer(config.env, config.task, config.model, policy, host)
    pool = player.pool(config.task.train_split, config.search)
    chat = player.chat_about(pool.base, temperature=config.model.temperature)
    searcher = player.searcher(pool.base, config.search)
    eval_player = ModelPlayer(config.env, config.task.examined, config.model, policy, host)
    held_out = HeldOut(eval_player.pool(config.task.eval_split), config.run.eval_instances)
    eval_chat = eval_player.chat_about(held_out.pool.base, temperature=config.run.eval_temperature)
    critic = _critic(config, policy, model_dir)
    rater = _rater(config, chat, critic, processes, workers)
    learner = Learner(
        policy.model,
        critic,
        config.learn,
        temperature=config.model.temperature,
        autocast=pick_autocast(config.model.dtype, device),
        reference=_reference(config, policy, folder),
        processes=processes,
    )
    collector: Collector | RemoteCollector
    if workers.wanted:
        # Workers get the files of the model, because the cluster's machines need not share a disk.
        files = files_of(model_dir, adapter=is_resumed)
        collector = RemoteCollector(config, files, workers, chat.engine, learner)
    else:
        collector = Collector(config.search, pool, chat, seed=config.run.seed, rater=rater, searcher=searcher)
    return Parts(policy, host, chat, searcher, held_out, eval_chat, learner, collector)


def _without_trie(config: TrainConfig) -> TrainConfig:
    """Return the configuration of a run whose parameters move: the trie engine keeps views of them."""
    if config.model.engine == "trie":
        raise ConfigError("with several processes or offload parameters move: wanted engine transformers, got trie")
    own = config.model
    return replace(config, model=replace(own, engine="transformers")) if own.engine == "auto" else config


def _host(
    config: TrainConfig, policy: LanguageModel, model_dir: Path, processes: Processes, workers: WorkerConfig
) -> Host | None:
    if workers.wanted:
        return None
    engine = config.model.engine
    if processes.size > 1 and engine != "transformers":
        raise ConfigError(f"several processes sample by engine transformers, or in workers of Ray, got {engine}")
    return policy_host(config.model, policy.model, model_dir, adapter_rank=config.adapter_rank)


def _critic(config: TrainConfig, policy: LanguageModel, model_dir: Path) -> Critic | None:
    if config.learn.algorithm != "ppo":
        return None
    if config.learn.critic == "head":
        return Critic.on(policy.model, gradient=config.learn.critic_gradient)
    return load_critic(model_dir, device=policy.model.device)


def _rater(
    config: TrainConfig, chat: ChatPolicy, critic: Critic | None, processes: Processes, workers: WorkerConfig
) -> Rater | None:
    """Return the rater of searches; one that names no critic uses the run's own."""
    if config.search.rater is None:
        return None
    rater = make_rater(config.search.rater, chat=chat, critic=critic)
    if goes_by(rater, critic):
        # The run's own critic has to be whole and in this process while searches run.
        if processes.size > 1 or config.learn.offload:
            raise ConfigError("a critic of PPO that is spread or offloaded rates no searches: wanted one process")
        if workers.wanted:
            raise ConfigError("workers do not have the run's own critic: wanted a rater of another one, or ray=off")
    return rater


def _reference(config: TrainConfig, policy: LanguageModel, folder: Path) -> Any | None:
    """Return the model that the run began with if the objective has a KL term, else None."""
    if not config.learn.objective.kl_weight:
        return None
    saved = folder / FIRST
    if saved.exists():
        return load_policy(saved, device=policy.model.device).model.requires_grad_(False)
    return frozen_reference(policy)
