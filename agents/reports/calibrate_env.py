"""Calibrate a score on an environment, both by their names, as the command line does."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple

from tsr_gym.agents.episodes.api_player import ApiPlayer, api_player
from tsr_gym.agents.episodes.env_pool import EnvPool, task_settings
from tsr_gym.agents.episodes.intervals import Interval
from tsr_gym.agents.episodes.play import PlayedEpisodes, bars, held_out, play
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.api_policy import ApiPolicy
from tsr_gym.agents.policies.random_policy import legal_player
from tsr_gym.agents.policies.settings import ApiConfig
from tsr_gym.agents.reports.calibration import (
    Drops,
    Rated,
    SiblingRanking,
    TurnRanking,
    find_drops,
    grow_rated,
    rank_siblings,
    rank_turns,
    siblings_walk,
    value_at,
)
from tsr_gym.agents.reports.load_player import load_player
from tsr_gym.agents.strategies import STRATEGIES, choose_strategy
from tsr_gym.errors import ConfigError, TsrGymError
from tsr_gym.keywords import Call, fold, parse_call, parse_settings
from tsr_gym.tree import Policy, Strategy

if TYPE_CHECKING:
    from tsr_gym.agents.episodes.model_player import ModelPlayer

# Called with the name of a part of the work, how much of it is done, and how much there is.
Watch = Callable[[str, int, int], None]
# What strategies call the number that decides what they spend, in the order in which it is looked for.
BUDGETS = ("branching", "n", "simulations", "expansions", "rollouts", "max_rollouts")
_NO_ORACLE = (
    "{} does not know the exact value of its states with these settings (best_value): no rank correlation, no shares "
    "of winnable and dead prefixes, and no optimal bar"
)
_LEFT_OUT = "{}: {:,} of {:,} states were left out, because their value is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationConfig:
    """What is held against exact values, and on what."""

    env: str
    """Gymnasium id, or a short name such as sokoban."""
    score: str = "reward"
    """Guide of the search: reward, or a scorer such as FrozenLakeScore or "SokobanScore(potential='estimate')"."""
    search: str = "beam"
    """beam, greedy, lookahead, best_of_n, puct or another strategy, with numbers of its own as in puct(c=2.0), or
    package.module:name of one of yours."""
    budgets: tuple[int, ...] = (1, 2, 4, 8)
    """What the search may spend, each a setting of its own: branching, or n, simulations, expansions or rollouts of a
    strategy that has these instead."""
    widths: tuple[int, ...] | None = None
    """Beam: paths that are kept, each a setting of its own; None for 1 and 2."""
    depth: int | None = None
    """Short for the number of this name in the search's call."""
    noise: Literal["fresh", "common", "same"] = "fresh"
    """Dice of imagined turns; same is clairvoyant and is marked in the report."""
    repeats: int = 1
    """Draws on which an imagined turn is scored that leaves something to chance."""
    risk: float | None = None
    """Quantile of the draws' scores that counts; None for their mean."""
    candidates: int = 8
    """Candidates that are compared at every place of the policy's own play."""
    instances: int = 128
    """Task instances; always the same first ones of the split."""
    seeds: int = 1
    """How often each is searched and played, on other samples and dice."""
    model: str = "random"
    """Who makes candidates: random for uniformly random legal actions, the folder of a model, default for the small
    embedded model, or with --engine openai the name of a model."""
    engine: Literal["transformers", "vllm", "vllm-server", "openai"] = "transformers"
    """Who samples: transformers or vLLM in this process, vLLM's own server, or one that speaks OpenAI's API."""
    engine_url: str | None = None
    """vLLM's own server, where it runs already on this machine; None starts one."""
    api: ApiConfig = field(default_factory=ApiConfig)
    at_temperature: float = 1.0
    """Of sampling, where a model makes candidates."""
    split: str | None = "test"
    """Instances to draw from; None where the environment has no splits."""
    preset: str = "paper"
    """Settings of the environment."""
    env_set: tuple[str, ...] = ()
    """More settings of the environment as KEY=VALUE, the value in JSON."""


class SearchSetting(NamedTuple):
    """A strategy with its numbers.

    Attributes:
        label: Both, as a configuration writes them.
        width: Paths that are kept; None where the strategy has no width, or one that is fixed.
        budget: What it may spend.
        strategy: Ready to be searched with.
    """

    label: str
    width: int | None
    budget: int
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class SettingResult:
    """What a search under one setting is worth.

    Attributes:
        label: The search and its numbers.
        width: Paths that are kept; None where the search has no width.
        budget: What it may spend.
        siblings: How scores rank what the search itself compares; None without exact values.
        drops: What it drops; None without exact values.
        success: Success of played episodes with a search before every turn.
        gain: The same above that of the policy alone.
        env_steps: Steps of the environment per episode, imagined ones included.
        sampled_tokens: Tokens that a model wrote per episode; 0 for a random policy.
    """

    label: str
    width: int | None
    budget: int
    siblings: SiblingRanking | None
    drops: Drops | None
    success: Interval
    gain: Interval
    env_steps: float
    sampled_tokens: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """All that a report says.

    Attributes:
        config: What was asked.
        budget: The number of the strategy that the budgets stand for.
        turns: How scores rank states, by turn of the policy's own play.
        siblings: How they rank candidates there; None without exact values.
        alone: Success of the policy alone.
        alone_env_steps: Its steps of the environment per episode.
        alone_sampled_tokens: Its tokens per episode.
        random: Success of random play, a point where it is exact.
        optimal: Success of the best possible play on these instances, exact; None where nobody knows.
        settings: The searches.
        unknown: What could not be worked out, in sentences.
    """

    config: CalibrationConfig
    budget: str
    turns: list[TurnRanking]
    siblings: SiblingRanking | None
    alone: Interval
    alone_env_steps: float
    alone_sampled_tokens: float
    random: Interval
    optimal: float | None
    settings: list[SettingResult]
    unknown: list[str]


def calibrate_env(
    config: CalibrationConfig,
    *,
    watch: Watch = lambda part, done, total: None,
    note: Callable[[str], None] = lambda text: None,
) -> Calibration:
    """Measure what a score is worth as the guide of a search on an environment.

    Args:
        config: What to measure.
        watch: Told how far the work is.
        note: Told what else is being done, such as building the embedded model.

    Raises:
        ConfigError: The environment, the scorer, the search or a setting is unknown, or they do not fit together.
        CheckpointError: The folder holds no model.
        MissingExtra: The environment, its oracle or the model needs a package that is not installed.
    """
    _check(config)
    pool, policy = _set_up(config, note)
    budget, settings = search_settings(config.search, widths=config.widths, budgets=config.budgets, depth=config.depth)
    tasks, seeds = held_out(config.instances), range(config.seeds)
    check_scorer(config.env, pool, policy, tasks[0])
    optimal = _optimum(pool, tasks)
    unknown = [] if optimal is not None else [_NO_ORACLE.format(config.env)]

    def told(part: str) -> Callable[[int], None]:
        return lambda done: watch(part, done, len(tasks) * len(seeds))

    def rated(strategy: Strategy, part: str, where: str) -> list[Rated] | None:
        if optimal is None:
            return None
        found = grow_rated(pool, policy, strategy, tasks=tasks, seeds=seeds, noise=config.noise, watch=told(part))
        if found.num_unknown:
            total = len(found.nodes) + found.num_unknown
            unknown.append(_LEFT_OUT.format(where, found.num_unknown, total))
        return found.nodes

    def played(strategy: Strategy | None, part: str) -> PlayedEpisodes:
        return play(pool, policy, strategy, tasks=tasks, seeds=seeds, noise=config.noise, watch=told(part))

    walked = rated(partial(siblings_walk, branching=config.candidates), "candidates", "the policy's play")
    alone = played(None, "policy alone")
    results = []
    for setting in settings:
        grown = rated(setting.strategy, f"{setting.label}: trees", setting.label)
        results.append(_result(setting, grown, played(setting.strategy, f"{setting.label}: play"), alone))
    _tell_cost(policy, note)
    return Calibration(
        config,
        budget,
        [] if walked is None else rank_turns(walked),
        None if walked is None else rank_siblings(walked),
        alone.success,
        *_per_episode(alone),
        _random_bar(config, pool, alone, tasks, seeds),
        optimal,
        results,
        unknown,
    )


def search_settings(
    search: str, *, widths: Sequence[int] | None, budgets: Sequence[int], depth: int | None = None
) -> tuple[str, list[SearchSetting]]:
    """Return what the budgets are numbers of, and the settings.

    Args:
        search: A strategy, see `SearchConfig.search`; numbers that it is given are not varied.
        widths: Of a strategy that has a width; None for 1 and 2 where it has one.
        budgets: Its branching, or whatever it has of `BUDGETS`.
        depth: Short for a number of that name in `search`.

    Raises:
        ConfigError: There is no such strategy, it has nothing to vary, or no such number.
    """
    call = parse_call(fold(search, {"depth": depth}, home=STRATEGIES, what="strategy"))
    # Numbers that are varied need not be there yet.
    found = inspect.signature(choose_strategy(str(call), **dict.fromkeys(BUDGETS, 1))).parameters
    free = [name for name in found if name not in call.keywords]
    budget_name = next((name for name in BUDGETS if name in free), None)
    if budget_name is None:
        raise ConfigError(f"the strategy {search!r} has no number to vary: wanted one of {list(BUDGETS)}")
    if widths is not None and "width" not in free:
        raise ConfigError(f"the strategy {search!r} has no width to vary, got widths {list(widths)}: leave them out")
    settings = []
    for width in (widths or (1, 2)) if "width" in free else (None,):
        for budget in budgets:
            numbers = ({} if width is None else {"width": width}) | {budget_name: budget} | call.keywords
            label = str(Call(call.name, numbers))
            settings.append(SearchSetting(label, width, budget, choose_strategy(label)))
    return budget_name, settings


def _check(config: CalibrationConfig) -> None:
    for name, numbers, least in (
        ("widths", (1,) if config.widths is None else config.widths, 1),
        ("budgets", config.budgets, 1),
        ("depth", (config.depth or 0,), 0),
        ("candidates", (config.candidates,), 2),
        ("instances", (config.instances,), 1),
        ("seeds", (config.seeds,), 1),
        ("repeats", (config.repeats,), 1),
    ):
        if not numbers or min(numbers) < least:
            raise ConfigError(f"wanted {name} >= {least}, got {', '.join(map(str, numbers)) or 'none'}")
    if config.risk is not None and not 0 <= config.risk <= 1:
        raise ConfigError(f"wanted risk from 0 to 1 or None, got {config.risk}")
    if config.repeats > 1 and config.noise == "same":
        raise ConfigError(f'repeats={config.repeats} needs draws that differ: wanted noise "fresh" or "common"')


def _set_up(config: CalibrationConfig, note: Callable[[str], None]) -> tuple[EnvPool, Policy]:
    """Return environments and who makes candidates in them."""
    task, named = TaskConfig(preset=config.preset, env_set=config.env_set), _model(config)
    settings = task_settings(config.env, config.preset, config.split)
    player: ApiPlayer | ModelPlayer | None = None
    think = True
    if config.engine == "openai":
        player = api_player(config.env, task, named, config.api)
    elif config.model != "random":
        player = load_player(config.env, task, named, note)
        settings |= player.policy.card.env_settings
        think = player.chat("", temperature=1.0).prompt.think
    pool = EnvPool(
        config.env,
        settings | parse_settings(config.env_set),
        score=config.score,
        think=think,
        noise=config.noise,
        repeats=config.repeats,
        risk=config.risk,
    )
    if player is None:
        return pool, legal_player(pool.base)
    return pool, player.chat_about(pool.base, temperature=config.at_temperature)


def _model(config: CalibrationConfig) -> ModelConfig:
    if config.model == "random" and config.engine != "transformers":
        raise ConfigError(f"random play needs no engine: wanted --model beside --engine {config.engine}, got none")
    return ModelConfig(model=config.model, engine=config.engine, engine_url=config.engine_url)


def check_scorer(env: str, pool: EnvPool, policy: Policy, task: int) -> None:
    """Rate one turn, so that a scorer of another environment is a message.

    Args:
        env: Name of the environment, for the message.
        pool: Environments with the scorer.
        policy: Who plays the turn.
        task: Seed of the instance.

    Raises:
        ConfigError: The scorer cannot rate the environment.
    """
    try:
        search(pool.set([task]), policy, partial(siblings_walk, branching=1), seeds=[task])
    except TsrGymError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"the scorer {pool.score} cannot rate {env}: {error}") from error


def _optimum(pool: EnvPool, tasks: Sequence[int]) -> float | None:
    """Return the mean value of the instances' first states, None where one is not known."""
    values = []
    for task in tasks:
        value = value_at(pool.base, pool.set([task])[0].tree, 0)
        if value is None:
            return None
        values.append(value)
    return fmean(values)


def _result(
    setting: SearchSetting, grown: list[Rated] | None, played: PlayedEpisodes, alone: PlayedEpisodes
) -> SettingResult:
    return SettingResult(
        setting.label,
        setting.width,
        setting.budget,
        None if grown is None else rank_siblings(grown),
        None if grown is None else find_drops(grown),
        played.success,
        played.gain_over(alone),
        *_per_episode(played),
    )


def _per_episode(played: PlayedEpisodes) -> tuple[float, float]:
    """Return the steps of the environment and the sampled tokens of an episode."""
    return played.spent.env_steps / played.num_episodes, played.spent.sampled_tokens / played.num_episodes


def _tell_cost(policy: Policy, note: Callable[[str], None]) -> None:
    """Tell what was asked of a server, where one was asked."""
    if isinstance(policy, ApiPolicy):
        note(f"asked: {policy.api.ledger}")


def _random_bar(
    config: CalibrationConfig, pool: EnvPool, alone: PlayedEpisodes, tasks: Sequence[int], seeds: Sequence[int]
) -> Interval:
    """Return the success of random play: exact where the environment knows it, else as it was played."""
    exact = bars(pool, tasks=tasks).random
    if exact is not None:
        return Interval(exact, exact, exact)
    if config.model == "random":
        return alone.success
    return play(pool, legal_player(pool.base), None, tasks=tasks, seeds=seeds).success
