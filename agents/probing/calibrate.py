"""Calibration: measure what a score is worth as the guide of a search on an environment."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import NamedTuple

from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.intervals import Interval
from tsr_gym.agents.episodes.play import PlayedEpisodes, bars, held_out, play
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.chat_api import ApiConfig, ApiPolicy
from tsr_gym.agents.policies.engine import find_engine
from tsr_gym.agents.policies.random_policy import legal_player
from tsr_gym.agents.probing.players import RANDOM, Note, WorldConfig, check_scorer, set_up
from tsr_gym.agents.probing.rankings import (
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
from tsr_gym.agents.strategies import STRATEGIES, choose_strategy
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import Call, choose, fold, parse_call
from tsr_gym.sections import check_choices, check_numbers
from tsr_gym.tree import Meter, Policy, Strategy

# Names of the number that decides what a strategy spends, in the order in which they are looked up.
BUDGETS = ("branching", "n", "simulations", "expansions", "rollouts", "max_rollouts")
_NO_ORACLE = (
    "{} does not know the exact value of its states with these settings (best_value): no rank correlation, no shares "
    "of winnable and dead prefixes, and no optimal bar"
)
_LEFT_OUT = "{}: {:,} of {:,} states were left out, because their value is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationConfig(WorldConfig):
    """The score, the searches that it guides, and the instances on which they are measured."""

    score: str = "reward"
    """Guide of the search: reward, or a scorer such as FrozenLakeScore or "SokobanScore(potential='estimate')"."""
    search: str = "beam"
    """beam, greedy, lookahead, best_of_n, puct or another strategy, with its numbers as in puct(c=2.0), or
    package.module:name of your own strategy."""
    budgets: tuple[int, ...] = (1, 2, 4, 8)
    """Budgets of the search, each a separate setting: branching, or n, simulations, expansions or rollouts of a
    strategy that has one of these instead."""
    widths: tuple[int, ...] | None = None
    """Beam: widths, each a separate setting; None for 1 and 2."""
    depth: int | None = None
    """Short for the number of this name in the search's call."""
    repeats: int = 1
    """Draws on which an imagined turn is scored whose result is random."""
    risk: float | None = None
    """Quantile of the scores of these draws that counts; None for their mean."""
    candidates: int = 8
    """Candidates that are compared at every state of the policy's own play."""
    instances: int = 128
    """Task instances; always the first ones of the split."""
    seeds: int = 1
    """Searches and played episodes per instance, on different samples and random numbers."""
    model: str = RANDOM
    """Player that makes candidates: random for uniformly random legal actions, the folder of a model, default for the
    small embedded model, or with --engine openai the name of a model."""
    engine: str = "auto"
    """Sampler: auto, trie, transformers, vllm (in this process), vllm-server (vLLM's own server), openai (a server that
    speaks OpenAI's API) or package.module:name of yours."""
    engine_url: str | None = None
    """URL of a running vLLM server on this machine; None starts one."""
    api: ApiConfig = field(default_factory=ApiConfig)
    at_temperature: float = 1.0
    """Temperature of sampling, where a model makes candidates."""
    split: str | None = "test"
    """Instances to draw from; None where the environment has no splits."""

    def __post_init__(self) -> None:
        check_choices(self)
        find_engine(self.engine)
        check_numbers(self, "widths", "budgets", "instances", "seeds", least=1)
        check_numbers(self, "candidates", least=2)
        check_numbers(self, "depth", least=0)
        if not self.budgets or self.widths == ():
            raise ConfigError("wanted at least one of budgets and widths, got none")
        if self.model == RANDOM and self.engine != "auto":
            raise ConfigError(f"random play needs no engine: wanted --model with --engine {self.engine}, got none")
        _ = self.imagined

    @property
    def imagined(self) -> SearchConfig:
        """The search section that imagined turns follow; it checks noise, repeats and risk."""
        return SearchConfig(noise=self.noise, repeats=self.repeats, risk=self.risk)


class SearchSetting(NamedTuple):
    """A strategy with its numbers.

    Attributes:
        label: Both, as a configuration writes them.
        width: Width of the beam; None where the strategy has no width, or a fixed one.
        budget: Its budget.
        strategy: The strategy with these numbers.
    """

    label: str
    width: int | None
    budget: int
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class SettingResult:
    """Measurements of a search under one setting.

    Attributes:
        label: The search and its numbers.
        width: Width of the beam; None where the search has no width.
        budget: Its budget.
        siblings: Ranking of the candidates that the search itself compares; None without exact values.
        drops: What it drops and keeps; None without exact values.
        success: Success of played episodes with a search before every turn.
        gain: The same minus the success of the policy alone.
        env_steps: Steps of the environment per episode, imagined ones included.
        sampled_tokens: Tokens sampled by a model per episode; 0 for a random policy.
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
    """The measurements of a calibration.

    Attributes:
        config: The configuration.
        budget: Name of the strategy's number that the budgets stand for.
        turns: Ranking of states, by turn of the policy's own play.
        siblings: Ranking of candidates there; None without exact values.
        alone: Success of the policy alone.
        alone_env_steps: Its steps of the environment per episode.
        alone_sampled_tokens: Its tokens per episode.
        random: Success of random play, an interval of length 0 where it is exact.
        optimal: Exact success of the best possible play on these instances; None where it is not known.
        settings: Results of the searches.
        unknown: Sentences about what could not be computed.
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
    config: CalibrationConfig, *, watch: Meter = lambda part, done, total: None, note: Note = lambda text: None
) -> Calibration:
    """Measure what a score is worth as the guide of a search on an environment.

    Args:
        config: The score, the searches and the instances.
        watch: See `Meter`.
        note: See `Note`.

    Raises:
        ConfigError: The environment, the scorer, the search or a setting is unknown, or they do not fit together.
        CheckpointError: The folder holds no model.
        MissingExtra: The environment, its oracle or the model needs a package that is not installed.
    """
    pool, policy = _guided(config, note)
    budget, settings = search_settings(config.search, widths=config.widths, budgets=config.budgets, depth=config.depth)
    tasks, seeds = held_out(config.instances), range(config.seeds)
    check_scorer(config.env, pool, policy, tasks[0])
    optimal = _optimum(pool, tasks)
    unknown = [] if optimal is not None else [_NO_ORACLE.format(config.env)]

    def progress(part: str) -> Callable[[int], None]:
        return lambda done: watch(part, done, len(tasks) * len(seeds))

    def rated(strategy: Strategy, part: str, where: str) -> list[Rated] | None:
        if optimal is None:
            return None
        grown = grow_rated(pool, policy, strategy, tasks=tasks, seeds=seeds, noise=config.noise, watch=progress(part))
        if grown.num_unknown:
            total = len(grown.nodes) + grown.num_unknown
            unknown.append(_LEFT_OUT.format(where, grown.num_unknown, total))
        return grown.nodes

    def played(strategy: Strategy | None, part: str) -> PlayedEpisodes:
        return play(pool, policy, strategy, tasks=tasks, seeds=seeds, noise=config.noise, watch=progress(part))

    # The walk ignores scores, so every scorer is compared on the same states; the searches below follow the score.
    walked = rated(partial(siblings_walk, branching=config.candidates), "candidates", "the policy's play")
    alone = played(None, "policy alone")
    results = []
    for setting in settings:
        grown = rated(setting.strategy, f"{setting.label}: trees", setting.label)
        results.append(_result(setting, grown, played(setting.strategy, f"{setting.label}: play"), alone))
    _note_requests(policy, note)
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


def _guided(config: CalibrationConfig, note: Note) -> tuple[EnvPool, Policy]:
    """Return the environments with the score, and the player."""
    model = ModelConfig(model=config.model, engine=config.engine, engine_url=config.engine_url)
    player = set_up(config, model, config.imagined, temperature=config.at_temperature, api=config.api, note=note)
    pool = player.pool(config.score)
    return pool, player.policy(pool.base)


def search_settings(
    search: str, *, widths: Sequence[int] | None, budgets: Sequence[int], depth: int | None = None
) -> tuple[str, list[SearchSetting]]:
    """Return the name of the number that the budgets stand for, and a setting per width and budget.

    Args:
        search: A strategy, see `SearchConfig.search`; numbers given in its call are not varied.
        widths: Of a strategy that has a width; None for 1 and 2 where it has one.
        budgets: Values of its branching, or of the first of `BUDGETS` that it has.
        depth: Short for a number of that name in `search`.

    Raises:
        ConfigError: There is no such strategy, it has nothing to vary, or no such number.
    """
    call = parse_call(fold(search, {"depth": depth}, home=STRATEGIES, what="strategy"))
    # A strategy may have numbers without a default. Those that are varied get any value here.
    offered = dict.fromkeys(BUDGETS, 1)
    parameters = inspect.signature(choose(str(call), home=STRATEGIES, what="strategy", offered=offered)).parameters
    free = [name for name in parameters if name not in call.keywords]
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


def _optimum(pool: EnvPool, tasks: Sequence[int]) -> float | None:
    """Return the mean value of the instances' first states; None where a value is not known."""
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


def _note_requests(policy: Policy, note: Note) -> None:
    """Report the requests to a server, which may have a price."""
    if isinstance(policy, ApiPolicy):
        note(f"asked: {policy.api.ledger}")


def _random_bar(
    config: CalibrationConfig, pool: EnvPool, alone: PlayedEpisodes, tasks: Sequence[int], seeds: Sequence[int]
) -> Interval:
    """Return the success of random play: exact where the environment knows it, else estimated from episodes."""
    exact = bars(pool, tasks=tasks).random
    if exact is not None:
        return Interval(exact, exact, exact)
    if config.model == RANDOM:
        return alone.success
    return play(pool, legal_player(pool.base), None, tasks=tasks, seeds=seeds).success
