"""ModelEvaluation: how a model plays held-out instances, beside its bars; torch-free where the model is not here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tsr_gym.agents.episodes.api_player import api_player
from tsr_gym.agents.episodes.held_out import HeldOut
from tsr_gym.agents.episodes.play import Bars, Evaluation, evaluate
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.chat_api import Ledger
from tsr_gym.agents.policies.settings import ApiConfig
from tsr_gym.agents.strategies import choose_strategy
from tsr_gym.tree import Candidate, Expand, Policy, Tree

Watch = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ModelEvaluation:
    """How a model plays, beside its bars.

    Attributes:
        instances_of: Environment, preset, split and search, in words.
        evaluation: The episodes that were played.
        bars: What they are held against.
        ledger: What was asked of a server; None for a model in this process.
    """

    instances_of: str
    evaluation: Evaluation
    bars: Bars
    ledger: Ledger | None = None


def examine(
    player: Any,
    split: str,
    instances: int,
    *,
    temperature: float,
    seed: int,
    search: SearchConfig,
    watch: Watch = lambda done, total: None,
) -> ModelEvaluation:
    """Play held-out instances.

    Args:
        player: A `ModelPlayer` or an `ApiPlayer`.
        split: Instances to play.
        instances: How many.
        temperature: Of sampling.
        seed: Of samples and dice.
        search: Naive for none; otherwise each turn is chosen by a search on imagined dice and then really played.
        watch: Called with the number of episodes that have ended, and of all.

    Raises:
        ConfigError: A setting is unknown or impossible.
    """
    strategy = None if search.name == "naive" else choose_strategy(search.search)
    pool = player.pool(split, search)
    chat = player.chat_about(pool.base, temperature=temperature)
    rater = None
    if search.rater is not None:
        # Raters need the libraries of learning.
        from tsr_gym.agents.raters import make_rater

        rater = make_rater(search.rater, chat=chat)
    exam = HeldOut(pool, instances)
    limits = exam.bars
    watched = _watched(chat, len(exam.tasks), watch)
    played = evaluate(pool, watched, tasks=exam.tasks, seed=seed, strategy=strategy, noise=search.noise, rater=rater)
    watch(len(exam.tasks), len(exam.tasks))
    return ModelEvaluation(_words(player.env, split, player.task, search), played, limits)


def _watched(policy: Policy, total: int, watch: Watch) -> Policy:
    """Return a policy that tells how many episodes ask it no more; their trees ask in every round."""

    def answer(requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        watch(total - min(total, len({id(tree) for tree, _ in requests})), total)
        return policy(requests)

    return answer


def evaluate_api(
    env: str,
    split: str,
    instances: int,
    at_temperature: float,
    seed: int,
    task: TaskConfig,
    search: SearchConfig,
    model: ModelConfig,
    api: ApiConfig,
    watch: Watch = lambda done, total: None,
) -> ModelEvaluation:
    """Play held-out instances with a model behind a server.

    Args:
        env: Environment.
        split: Instances to play.
        instances: How many.
        at_temperature: Of sampling.
        seed: Of samples and dice.
        task: What is played.
        search: Naive for none.
        model: Its name, and how it is used.
        api: The server.
        watch: As in `examine`.

    Raises:
        ConfigError: A setting is unknown or impossible.
        EngineFailed: The server refuses to answer, or does not.
        MissingExtra: httpx is not installed.
    """
    player = api_player(env, task.held_out, model, api)
    found = examine(player, split, instances, temperature=at_temperature, seed=seed, search=search, watch=watch)
    return ModelEvaluation(found.instances_of, found.evaluation, found.bars, player.api.ledger)


def _words(env: str, split: str, task: TaskConfig, search: SearchConfig) -> str:
    by = "no search" if search.name == "naive" else f"search {search.search}"
    clairvoyant = " (clairvoyant)" if search.name != "naive" and search.noise == "same" else ""
    return f"{env}, preset {task.preset}, split {split}, {by}{clairvoyant}"
