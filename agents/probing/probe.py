"""Probe: measure what a success costs by plain play and by searches, before anything is learned.

Searches run on training instances and are harvested as in training. A success on a searched path is imagined: it is
training data, and no success of the policy.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

from tsr_gym.agents.episodes.collect import Collector, choose_search
from tsr_gym.agents.episodes.env_pool import DeadEndRule, EnvPool
from tsr_gym.agents.episodes.intervals import Interval, Price, price_of_success, share_of
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.models.settings import ModelConfig, model_path
from tsr_gym.agents.probing.players import RANDOM, Note, WorldConfig, check_scorer, set_up
from tsr_gym.agents.strategies import choose_strategy
from tsr_gym.agents.strategies.order import harvesting_of
from tsr_gym.errors import CheckpointError, ConfigError
from tsr_gym.files import folder_digest, read_regular, write_atomically
from tsr_gym.keywords import bind
from tsr_gym.sections import check_choices, check_numbers
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Meter, Policy
from tsr_gym.version import __version__

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
class ProbeConfig(WorldConfig):
    """The searches, their guides, and the number of measurements."""

    search: tuple[str, ...] = ()
    """Searches to compare with plain play, as for training; none for best_of_n, beam, lookahead, best_first and puct at
    small budgets."""
    score: tuple[str, ...] = ("reward",)
    """Guides of the searches: reward, or scorers such as "SokobanScore(potential='estimate')"; each search is made with
    each guide, except searches that follow the reward itself."""
    instances: int = 64
    """Task instances: the first ones that a run with this seed is trained on."""
    episodes: int = 4
    """Episodes of plain play per instance; each search is made once per instance."""
    batch: int = 16
    """Instances that are searched at a time. After each batch, searches that are clearly worse are stopped."""
    seed: int = 0
    """Seed of instances, samples and random numbers."""
    dead_ends: DeadEndRule = "off"
    """States that searches leave out: none, proven dead ends, or also states that the limits leave no room for. Proofs
    are not public."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The player; the model's name is random for uniformly random legal actions, which have no tokens."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_numbers(self, "instances", "episodes", "batch", least=1)
        if self.model.engine == "openai":
            raise ConfigError(
                "a probe estimates what training would cost, and a model behind a server cannot be trained: wanted "
                "engine transformers, got openai"
            )
        if not self.score:
            raise ConfigError("wanted a score, got none: reward is the environment's own")

    @property
    def counts(self) -> Literal["sampled_tokens", "env_steps"]:
        """The unit of costs: sampled tokens, or steps of the environment where a player has no tokens."""
        return "env_steps" if self.model.model == RANDOM else "sampled_tokens"

    def search_section(self, search: str) -> SearchConfig:
        """Return the section of a run that plays in this way."""
        trajectories = self.episodes if search == PLAIN else 1
        return SearchConfig(
            search=bind(search, choose_strategy), trajectories=trajectories, noise=self.noise, dead_ends=self.dead_ends
        )


class Way(NamedTuple):
    """A way to play: a search, or ``naive`` for plain play, and its guide."""

    search: str
    score: str


class Measured(NamedTuple):
    """The measurement of one instance.

    Attributes:
        episodes: Trajectories that training would learn from.
        successes: Number of these that solved the task.
        sampled_tokens: Of the whole trees.
        prompt_tokens: Of the whole trees.
        env_steps: Of the whole trees.
    """

    episodes: int
    successes: int
    sampled_tokens: int
    prompt_tokens: int
    env_steps: int


@dataclass(frozen=True, slots=True)
class Tally:
    """The measurements of one way to play.

    Attributes:
        way: The way.
        measured: By instance, in their order.
        stopped: Whether it was stopped because it is clearly worse than another way.
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
        return [instance[place] for instance in self.measured]

    def price(self, name: str, level: float = 0.95) -> Price:
        """Return how much of a count is spent per success, with the interval of a level."""
        return price_of_success(self.each(name), self.each("successes"), self.each("episodes"), level)

    @property
    def success(self) -> Interval:
        """Share of the episodes that solved the task, with its interval over instances (`share_of`)."""
        return share_of(self.each("successes"), self.each("episodes"))


@dataclass(frozen=True, slots=True)
class Probe:
    """The measurements of a probe.

    Attributes:
        config: The configuration.
        tallies: Plain play, then the searches in the order of the configuration.
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
        bound = choose_search(config.search_section(search))
        by_reward = bound.name == PLAIN or harvesting_of(bound.strategy).by == "reward"
        name = PLAIN if bound.name == PLAIN else search
        ways += [Way(name, score) for score in (("reward",) if by_reward else config.score)]
    return list(dict.fromkeys(ways))


def probe_env(
    config: ProbeConfig,
    *,
    out: Path | None = None,
    watch: Meter = lambda part, done, total: None,
    note: Note = lambda text: None,
) -> Probe:
    """Measure what a success costs by each way to play.

    Args:
        config: The searches and the instances.
        out: Folder that keeps the measurements; those that it already holds are not repeated.
        watch: See `Meter`.
        note: See `Note`.

    Raises:
        ConfigError: The environment, a scorer, a search or a setting is unknown, or they do not fit together, or the
            folder was measured with other settings.
        CheckpointError: The model's folder holds no model, or the file of measurements is damaged.
        MissingExtra: The environment or the model needs a package that is not installed.
    """
    ways = ways_to_play(config)
    kept = read_tallies(out, config)
    model = config.model
    player = set_up(config, model, config.search_section(PLAIN), temperature=model.temperature, note=note)
    pools = {score: player.pool(score) for score in dict.fromkeys(way.score for way in ways)}
    policy = player.policy(pools["reward"].base)
    for pool in pools.values():
        check_scorer(config.env, pool, policy, derive_seed(config.seed, "task", 0))
    return race(config, pools.__getitem__, policy, kept=kept, out=out, watch=watch)


def race(
    config: ProbeConfig,
    pool: Callable[[str], EnvPool],
    policy: Policy,
    *,
    kept: dict[Way, Tally] | None = None,
    out: Path | None = None,
    watch: Meter = lambda part, done, total: None,
) -> Probe:
    """Measure all ways to play on the same instances, and stop those that are clearly worse.

    The way with the fewest instances takes the next batch; then searches may be stopped, see `stop_the_worse`. All that
    is random derives from the seed and the number of an instance, so a probe that was interrupted continues with the
    results that it would have had.

    Args:
        config: The searches and the instances.
        pool: Returns the environments with a score.
        policy: The player.
        kept: Measurements of an earlier probe.
        out: Folder in which measurements are kept after every batch.
        watch: See `Meter`.
    """
    tallies = {way: (kept or {}).get(way, Tally(way)) for way in ways_to_play(config)}
    while running := [
        way for way, tally in tallies.items() if not tally.stopped and len(tally.measured) < config.instances
    ]:
        # All ways advance at the same pace, so that prices are compared over nearly the same instances, and a bad
        # search is stopped before it has cost much.
        way = min(running, key=lambda way: len(tallies[way].measured))
        first = len(tallies[way].measured)
        count = min(config.batch, config.instances - first)
        collector = Collector(config.search_section(way.search), pool(way.score), policy, seed=config.seed)
        measured = (*tallies[way].measured, *measure(collector, first, count))
        tallies[way] = replace(tallies[way], measured=measured)
        stopped = stop_the_worse(list(tallies.values()), config.counts, looks=-(-config.instances // config.batch))
        tallies = {tally.way: tally for tally in stopped}
        if out is not None:
            # The file keeps ways of earlier calls that this one does not measure.
            write_tallies(out, config, (kept or {}) | tallies)
        watch(label(way), first + count, config.instances)
    return Probe(config, tuple(tallies.values()))


def measure(collector: Collector, first: int, count: int) -> list[Measured]:
    """Search some instances as training would, and return the measurement of each.

    Args:
        collector: Searches.
        first: Number of the first instance in the run's sequence.
        count: Number of instances.
    """
    collected = collector.collect(first, count)
    measured = []
    for group, trees in zip(collected.groups, collected.trees, strict=True):
        budgets = [tree.spent for tree in trees]
        measured.append(
            Measured(
                len(group.trajectories),
                sum(trajectory.success for trajectory in group.trajectories),
                sum(budget.sampled_tokens for budget in budgets),
                sum(budget.prompt_tokens for budget in budgets),
                sum(budget.env_steps for budget in budgets),
            )
        )
    return measured


def stop_the_worse(tallies: list[Tally], counts: str, *, looks: int) -> list[Tally]:
    """Return the tallies, those stopped whose success costs clearly more than the cheapest one.

    A search is stopped when the lower end of its price of a success lies above the upper end of the best price. Two
    intervals of one width and quantile z part as rarely as a test with the quantile z * sqrt(2). Each of `looks`
    batches compares a search with all others, so

        z = max(1.96, quantile(1 - 0.05 / (looks * others)) / sqrt(2))

    stops one of several equal searches in at most 5 % of probes, and none whose interval of 95 % reaches that of the
    best. Plain play is the baseline and is never stopped.

    Args:
        tallies: So far; those without any instance are neither compared nor stopped.
        counts: The unit of costs.
        looks: Number of batches of the whole probe, after each of which prices are compared.
    """
    normal = NormalDist()
    alone = normal.inv_cdf(1 - 0.05 / (looks * max(1, len(tallies) - 1))) / sqrt(2)
    level = max(0.95, 2 * normal.cdf(alone) - 1)
    # A price has an upper end only after a success; until then it cannot stop any other way.
    prices = [tally.price(counts, level) if tally.measured else None for tally in tallies]
    highs = [price.high for price in prices if price is not None and price.high is not None]
    return [
        replace(tally, stopped=True)
        if highs and price is not None and price.low > min(highs) and tally.way.search != PLAIN
        else tally
        for tally, price in zip(tallies, prices, strict=True)
    ]


def best_search(tallies: Sequence[Tally], counts: str) -> tuple[Tally, Price] | None:
    """Return the cheapest search, and the price of a success by it; None where no search succeeded.

    The lowest of several measured prices is too low, because it was chosen for its luck. So on each half of the
    instances (even and odd numbers) this prices the search that is the cheapest on the other half.
    """
    searches = [tally for tally in tallies if tally.way.search != PLAIN and tally.total("successes")]

    def cheapest(first: int, step: int) -> Tally:
        parts = [replace(tally, measured=tally.measured[first::step]) for tally in searches]
        # Successes per token and not tokens per success, because a search may have no success on one of the halves.
        rates = [part.total("successes") / max(part.total(counts), 1) for part in parts]
        return searches[rates.index(max(rates))]

    if not searches:
        return None
    priced = [instance for half in (0, 1) for instance in cheapest(1 - half, 2).measured[half::2]]
    best = cheapest(0, 1)
    return best, replace(best, measured=tuple(priced)).price(counts)


def label(way: Way) -> str:
    """Return a way to play in words."""
    if way.search == PLAIN:
        return "plain play"
    return way.search if way.score == "reward" else f"{way.search}, {way.score}"


def write_tallies(out: Path, config: ProbeConfig, tallies: dict[Way, Tally]) -> None:
    """Write the measurements into a folder, atomically."""
    out.mkdir(parents=True, exist_ok=True)
    data = {"settings": _settings(config), "ways": [asdict(tally) for tally in tallies.values()]}
    write_atomically(out / FILE, (json.dumps(data, indent=1) + "\n").encode())


def read_tallies(out: Path | None, config: ProbeConfig) -> dict[Way, Tally]:
    """Return the measurements that a folder holds; an empty dictionary where there are none.

    Raises:
        ConfigError: It was measured with other settings; only searches, scores, the number of instances and the batch
            may differ.
        CheckpointError: The file is damaged.
    """
    if out is None or not (out / FILE).exists():
        return {}
    try:
        data = json.loads(read_regular(out / FILE))
        settings, ways = dict(data["settings"]), data["ways"]
        tallies = [
            Tally(Way(*row["way"]), tuple(Measured(*map(int, each)) for each in row["measured"]), bool(row["stopped"]))
            for row in ways
        ]
        by_way = {tally.way: tally for tally in tallies}
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, OSError) as error:
        raise CheckpointError(f"{out / FILE}: not the file of a probe ({error}): choose another --out") from error
    expected = _settings(config)
    if settings != expected:
        other = sorted(name for name in expected if settings.get(name) != expected[name])
        raise ConfigError(f"{out / FILE} was measured with other settings ({', '.join(other)}): choose another --out")
    return by_way


def _settings(config: ProbeConfig) -> dict[str, Any]:
    """Return the settings that all measurements in a folder share, as JSON reads them."""
    free = ("search", "score", "instances", "batch")
    # Through JSON, because the file has lists where a configuration has tuples.
    settings: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    settings["model"]["model"] = model_digest(config.model.model)
    return {name: value for name, value in settings.items() if name not in free}


def model_digest(model: str) -> str:
    """Return the identity of a model: the digest of its files, so that a folder with other weights is another model.

    The embedded default model is decided by the environment and the version of the package, random play by its name.
    """
    from tsr_gym.agents.runs.progress import checkpoints

    folder = Path(model_path(model))
    if not folder.is_dir():
        return f"{model} of {__version__}" if model == ModelConfig().model else model
    saved = checkpoints(folder)
    folder = saved[-1] / "model" if saved else folder
    # Probes write after every batch, and large weights take long to read.
    stamps = tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(folder.iterdir()))
    return _digest_at(folder, stamps)


@lru_cache(maxsize=8)
def _digest_at(folder: Path, stamps: tuple[tuple[str, int, int], ...]) -> str:
    return folder_digest(folder)
