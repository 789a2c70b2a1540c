"""Probe: what a success costs by plain play and by searches, before anything is learned, on training instances.

Searches are those of training, harvested as training harvests them; a searched success was imagined, and is no success
of the policy.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tsr_gym.agents.episodes.collect import Collector, choose_search
from tsr_gym.agents.episodes.env_pool import DeadEndRule, EnvPool, task_settings
from tsr_gym.agents.episodes.intervals import Interval, Price, pooled_mean, price_of_success, wilson
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.random_policy import legal_player
from tsr_gym.agents.reports.calibrate_env import check_scorer
from tsr_gym.agents.reports.load_player import load_player
from tsr_gym.agents.strategies.harvest import harvesting_of
from tsr_gym.errors import CheckpointError, ConfigError
from tsr_gym.files import write_atomically
from tsr_gym.keywords import parse_settings
from tsr_gym.sections import check_choices, check_numbers
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Policy

# Called with the name of a part of the work, how much of it is done, and how much there is.
Watch = Callable[[str, int, int], None]
FILE = "probe.json"
PLAIN = "naive"
SEARCHES = (
    "best_of_n(n=4)",
    "beam(width=2, branching=4)",
    "lookahead(branching=4, depth=2)",
    "best_first(expansions=20, samples=5)",
    "puct(simulations=16)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeConfig:
    """What is searched, how, and how often."""

    env: str
    """Gymnasium id, or a short name such as sokoban."""
    search: tuple[str, ...] = ()
    """Searches beside plain play, as for training; none for best_of_n, beam, lookahead, best_first and puct at small
    budgets."""
    score: tuple[str, ...] = ("reward",)
    """Guides of the searches: reward, or scorers such as "SokobanScore(potential='estimate')"; each search is made with
    each, but for those that go by the reward itself."""
    instances: int = 64
    """Task instances: the first ones that a run with this seed is trained on."""
    episodes: int = 4
    """Episodes of plain play per instance; each search is made once per instance."""
    batch: int = 16
    """Instances that are searched side by side. After each batch, searches that are clearly worse are stopped."""
    seed: int = 0
    """Of instances, samples and dice."""
    split: str | None = "train"
    """Instances to draw from; None where the environment has no splits."""
    preset: str = "paper"
    """Settings of the environment."""
    env_set: tuple[str, ...] = ()
    """More settings of the environment as KEY=VALUE, the value in JSON."""
    noise: Literal["fresh", "common", "same"] = "fresh"
    """Dice of imagined turns; same is clairvoyant."""
    dead_ends: DeadEndRule = "off"
    """What searches leave out: nothing, what is proven lost, or also what the limits leave no room for."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Who plays; the model's name is random for uniformly random legal actions, which have no tokens."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_numbers(self, "instances", "episodes", "batch", least=1)
        if self.model.engine == "openai":
            raise ConfigError(
                "a probe tells what training would pay, and a model behind a server cannot be trained: wanted engine "
                "transformers, got openai"
            )
        if not self.score:
            raise ConfigError("wanted a score, got none: reward is the environment's own")

    @property
    def counts(self) -> Literal["sampled_tokens", "env_steps"]:
        """What a success is paid in: sampled tokens, or steps of the environment where a player has none."""
        return "env_steps" if self.model.model == "random" else "sampled_tokens"


class Way(NamedTuple):
    """A way to play: a search, ``naive`` for plain play, and its guide."""

    search: str
    score: str


class Measured(NamedTuple):
    """What was done on one instance.

    Attributes:
        episodes: Trajectories that training would learn from.
        successes: Those of them that solved the task.
        sampled_tokens: Of everything that grew.
        prompt_tokens: Of everything that grew.
        env_steps: Of everything that grew.
    """

    episodes: int
    successes: int
    sampled_tokens: int
    prompt_tokens: int
    env_steps: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What was measured of one way to play.

    Attributes:
        way: The way.
        measured: By instance, in their order.
        stopped: Whether it was left because it is clearly worse than another one.
    """

    way: Way
    measured: tuple[Measured, ...] = ()
    stopped: bool = False

    def total(self, name: str) -> int:
        """Return a count over all instances."""
        return sum(self.each(name))

    def each(self, name: str) -> list[int]:
        """Return a count of every instance."""
        place = Measured._fields.index(name)
        return [one[place] for one in self.measured]

    def price(self, name: str) -> Price:
        """Return how much of a count there is for each success."""
        return price_of_success(self.each(name), self.each("successes"), self.each("episodes"))

    @property
    def success(self) -> Interval:
        """Share of the episodes that solved the task: Wilson's interval, over instances where each has several."""
        won, played = self.total("successes"), self.total("episodes")
        if played == len(self.measured):
            return Interval(won / max(played, 1), *wilson(won, played))
        owners = [owner for owner, one in enumerate(self.measured) for _ in range(one.episodes)]
        flat = [float(place < one.successes) for one in self.measured for place in range(one.episodes)]
        estimate = pooled_mean(flat, owners)
        # Resampling instances of which none was solved would say that none ever is.
        return estimate if won and estimate is not None else Interval(0.0, *wilson(0, played))


@dataclass(frozen=True, slots=True)
class Probe:
    """All that was measured.

    Attributes:
        config: What was asked.
        tallies: Plain play, then the searches in the order in which they were asked for.
    """

    config: ProbeConfig
    tallies: tuple[Tally, ...]


def ways_to_play(config: ProbeConfig) -> list[Way]:
    """Return plain play, then every search with every score, each once.

    Raises:
        ConfigError: There is no such search, or it cannot have these numbers.
    """
    ways = [Way(PLAIN, "reward")]
    for search in config.search or SEARCHES:
        chosen = choose_search(_search_config(config, search))
        by_reward = chosen.name == PLAIN or harvesting_of(chosen.strategy).by == "reward"
        named = PLAIN if chosen.name == PLAIN else search
        ways += [Way(named, score) for score in (("reward",) if by_reward else config.score)]
    return list(dict.fromkeys(ways))


def probe_env(
    config: ProbeConfig,
    *,
    out: Path | None = None,
    watch: Watch = lambda part, done, total: None,
    note: Callable[[str], None] = lambda text: None,
) -> Probe:
    """Measure what a success costs by each way to play.

    Args:
        config: What to measure.
        out: Folder that keeps what was measured; what it holds already is not measured again.
        watch: Told how far the work is.
        note: Told what else is being done, such as building the embedded model.

    Raises:
        ConfigError: The environment, a scorer, a search or a setting is unknown, or they do not fit together, or the
            folder was measured with other settings.
        CheckpointError: The model's folder holds no model, or what was measured is damaged.
        MissingExtra: The environment or the model needs a package that is not installed.
    """
    ways = ways_to_play(config)
    kept = read_tallies(out, config)
    pool, policy = _set_up(config, note)
    pools = {score: pool(score) for score in dict.fromkeys(way.score for way in ways)}
    for each in pools.values():
        check_scorer(config.env, each, policy, derive_seed(config.seed, "task", 0))
    return race(config, pools.__getitem__, policy, kept=kept, out=out, watch=watch)


def race(
    config: ProbeConfig,
    pool: Callable[[str], EnvPool],
    policy: Policy,
    *,
    kept: dict[Way, Tally] | None = None,
    out: Path | None = None,
    watch: Watch = lambda part, done, total: None,
) -> Probe:
    """Measure all ways to play side by side, and stop those that are clearly worse.

    The way with the fewest instances takes the next batch, so all of them are measured on the same instances. A search
    is stopped when the lower end of what its success costs lies above the upper end of the best one's. Plain play is
    what all are held against, and is never stopped. Everything random derives from the seed and the number of an
    instance, so that a probe that goes on repeats what it would have done.

    Args:
        config: What to measure.
        pool: Environments with a score.
        policy: Who plays.
        kept: What was measured before.
        out: Folder in which it is kept after every batch.
        watch: Told how far the work is.
    """
    tallies = {way: (kept or {}).get(way, Tally(way)) for way in ways_to_play(config)}
    while going := [way for way, one in tallies.items() if not one.stopped and len(one.measured) < config.instances]:
        way = min(going, key=lambda one: len(tallies[one].measured))
        first = len(tallies[way].measured)
        count = min(config.batch, config.instances - first)
        found = measure(_collector(config, way, pool(way.score), policy), first, count)
        tallies[way] = replace(tallies[way], measured=(*tallies[way].measured, *found))
        tallies = {one.way: one for one in stop_the_worse(list(tallies.values()), config.counts)}
        if out is not None:
            write_tallies(out, config, (kept or {}) | tallies)
        watch(label(way), first + count, config.instances)
    return Probe(config, tuple(tallies.values()))


def measure(collector: Collector, first: int, count: int) -> list[Measured]:
    """Search some instances as training would, and return what each cost and brought.

    Args:
        collector: Searches.
        first: Number of the first instance of the run's sequence.
        count: How many.
    """
    collected = collector.collect(first, count)
    found = []
    for group, trees in zip(collected.groups, collected.trees, strict=True):
        spent = [tree.spent for tree in trees]
        found.append(
            Measured(
                len(group.trajectories),
                sum(trajectory.success for trajectory in group.trajectories),
                sum(one.sampled_tokens for one in spent),
                sum(one.prompt_tokens for one in spent),
                sum(one.env_steps for one in spent),
            )
        )
    return found


def stop_the_worse(tallies: list[Tally], counts: str) -> list[Tally]:
    """Return the tallies with those stopped whose success costs clearly more than the best one's.

    Args:
        tallies: So far; those without any instance are neither compared nor stopped.
        counts: What a success is paid in.
    """
    prices = [one.price(counts) if one.measured else None for one in tallies]
    highs = [price.high for price in prices if price is not None and price.high is not None]
    return [
        replace(one, stopped=True)
        if highs and price is not None and price.low > min(highs) and one.way.search != PLAIN
        else one
        for one, price in zip(tallies, prices, strict=True)
    ]


def label(way: Way) -> str:
    """Return a way to play in words."""
    if way.search == PLAIN:
        return "plain play"
    return way.search if way.score == "reward" else f"{way.search}, {way.score}"


def write_tallies(out: Path, config: ProbeConfig, tallies: dict[Way, Tally]) -> None:
    """Write what was measured into a folder, so that it is there whole or as it was before."""
    out.mkdir(parents=True, exist_ok=True)
    data = {"settings": _settings(config), "ways": [asdict(one) for one in tallies.values()]}
    write_atomically(out / FILE, (json.dumps(data, indent=1) + "\n").encode())


def read_tallies(out: Path | None, config: ProbeConfig) -> dict[Way, Tally]:
    """Return what a folder holds; nothing where there is none.

    Raises:
        ConfigError: It was measured with other settings; only searches, scores, the number of instances and the batch
            may change.
        CheckpointError: The file is damaged.
    """
    if out is None or not (out / FILE).exists():
        return {}
    try:
        data = json.loads((out / FILE).read_text())
        settings, ways = data["settings"], data["ways"]
        tallies = [
            Tally(Way(*one["way"]), tuple(Measured(*map(int, row)) for row in one["measured"]), bool(one["stopped"]))
            for one in ways
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{out / FILE}: not what a probe has measured ({error}): choose another --out") from error
    wanted = _settings(config)
    if settings != wanted:
        other = sorted(name for name in wanted if settings.get(name) != wanted[name])
        raise ConfigError(f"{out / FILE} was measured with other settings ({', '.join(other)}): choose another --out")
    return {one.way: one for one in tallies}


def _settings(config: ProbeConfig) -> dict[str, Any]:
    """Return the settings that all measurements in a folder share, as JSON reads them."""
    free = ("search", "score", "instances", "batch")
    found: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    return {name: value for name, value in found.items() if name not in free}


def _search_config(config: ProbeConfig, search: str) -> SearchConfig:
    trajectories = config.episodes if search == PLAIN else 1
    return SearchConfig(search=search, trajectories=trajectories, noise=config.noise, dead_ends=config.dead_ends)


def _collector(config: ProbeConfig, way: Way, pool: EnvPool, policy: Policy) -> Collector:
    return Collector(_search_config(config, way.search), pool, policy, seed=config.seed)


def _set_up(config: ProbeConfig, note: Callable[[str], None]) -> tuple[Callable[[str], EnvPool], Policy]:
    """Return how environments with a score are made, and who plays in them."""
    task = TaskConfig(preset=config.preset, env_set=config.env_set)
    search = _search_config(config, PLAIN)
    if config.model.model != "random":
        player = load_player(config.env, task, config.model, note)
        base = player.pool(config.split, search).base

        def scored(score: str) -> EnvPool:
            return replace(player, task=replace(task, score=score)).pool(config.split, search)

        return scored, player.chat_about(base, temperature=config.model.temperature)
    settings = task_settings(config.env, config.preset, config.split) | parse_settings(config.env_set)

    def pool(score: str) -> EnvPool:
        return EnvPool(config.env, settings, score=score, noise=config.noise, dead_ends=config.dead_ends)

    return pool, legal_player(pool("reward").base)
