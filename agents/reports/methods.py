"""Methods: runs grouped by method, each seed once, and differences between methods in pairs of equal seeds.

All runs are evaluated on the same instances. Success and cost between two evaluations are interpolated linearly.
Torch-free.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tsr_gym.agents.config import RUN_FILE, TrainConfig
from tsr_gym.agents.episodes.intervals import crossed_mean
from tsr_gym.agents.runs.log import JsonLines
from tsr_gym.agents.runs.progress import counted, read_targets, total_of
from tsr_gym.errors import CheckpointError, ConfigError, NothingThere, shown
from tsr_gym.keywords import parse_settings
from tsr_gym.registration import env_id
from tsr_gym.tree import Budget, Meter

# Settings in which the runs of one method may differ.
_NO_METHOD = (
    *("env", "run.seed", "run.out", "run.label"),
    *("run.checkpoint_every", "run.keep_checkpoints", "run.save_trees"),
)

Cost = Literal["sampled_tokens", "prompt_tokens", "env_steps", "seconds", "optimizer_steps"]
COSTS: tuple[Cost, ...] = ("sampled_tokens", "prompt_tokens", "env_steps", "seconds", "optimizer_steps")
# Parts of the seconds of an update.
PARTS = ("model", "env", "tree", "update")


@dataclass(frozen=True, slots=True)
class Run:
    """A run, as read from its files.

    Attributes:
        folder: Its folder.
        label: Name of its method.
        config: All settings.
        updates: The lines of ``metrics.jsonl``.
        evaluations: The lines of ``evaluations.jsonl``.
    """

    folder: Path
    label: str
    config: TrainConfig
    updates: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]

    @property
    def is_finished(self) -> bool:
        """Whether its last evaluation is that of its end: after all its updates, or after all its tokens."""
        last, total = self.evaluations[-1], total_of(self.config.run, read_targets(self.folder))
        tokens = Budget(sampled_tokens=last["sampled_tokens_total"], prompt_tokens=last.get("prompt_tokens_total") or 0)
        all_tokens = total is not None and counted(tokens, self.config.run) >= total
        return all_tokens or bool(last["step"] >= self.config.run.updates)


def load_run(folder: Path) -> Run:
    """Read a run's folder.

    Raises:
        CheckpointError: The folder holds no run, or one without any evaluation, or a line of a log is damaged.
    """
    if not (folder / RUN_FILE).is_file():
        raise NothingThere(f"{folder}: wanted the folder of a run with {RUN_FILE}, found none")
    config = TrainConfig.load(folder, bound=False)
    evaluations, updates = (
        _checked(folder / f"{name}.jsonl", columns)
        for name, columns in (("evaluations", _EVALUATION), ("metrics", _UPDATE))
    )
    if not evaluations:
        raise CheckpointError(f"{folder}: the run has not been evaluated yet")
    return Run(folder, label_of(config), config, updates, evaluations)


def _is_amount(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1e18  # type: ignore[operator]


def _is_share(value: object) -> bool:
    return _is_amount(value) and value <= 1  # type: ignore[operator]


def _are_seconds(value: object) -> bool:
    return isinstance(value, dict) and all(_is_amount(value.get(part)) for part in (*PARTS, "all"))


def _are_pairs(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)


# By column: its type for messages, whether every line has it, and its check.
_EVALUATION: dict[str, tuple[str, bool, Callable[[Any], bool]]] = {
    "step": ("a count", True, _is_amount),
    "success": ("a share", True, _is_share),
    "instances": ("a count of 1 or more", True, lambda value: type(value) is int and 0 < value < 10**9),
    "sampled_tokens_total": ("a count", True, _is_amount),
    "prompt_tokens_total": ("a count", False, _is_amount),
    "random": ("a share or null", False, _is_share),
    "optimal": ("a share or null", False, _is_share),
    "won": ("a text", False, lambda value: isinstance(value, str)),
    "twins": ("a list of pairs", False, _are_pairs),
}
_UPDATE: dict[str, tuple[str, bool, Callable[[Any], bool]]] = {
    "step": ("a count", True, _is_amount),
    "seconds": (f"numbers for {', '.join(PARTS)} and all", True, _are_seconds),
    "per_instance": ("a text", False, lambda value: isinstance(value, str)),
    "groups": ("a count", False, _is_amount),
    "share_search": ("a share", False, _is_share),
    **{cost: ("a count", False, _is_amount) for cost in COSTS if cost != "seconds"},
}


def _checked(path: Path, columns: Mapping[str, tuple[str, bool, Callable[[Any], bool]]]) -> list[dict[str, Any]]:
    """Return the lines of a log, with the types that reports need."""
    records, before = JsonLines(path).read(), -1
    for number, record in enumerate(records, start=1):
        wrong = [
            f"{name} as {wanted}, got {shown(record.get(name))}"
            for name, (wanted, needed, is_right) in columns.items()
            if (needed or record.get(name) is not None) and not is_right(record.get(name))
        ]
        wrong += [] if record["step"] > before else [f"a step above {before}, got {record['step']}"]
        if wrong:
            raise CheckpointError(f"{path}, line {number}: wanted {wrong[0]}: damaged; mend or delete that line")
        before = record["step"]
    return records


def label_of(config: TrainConfig) -> str:
    """Return the name of a run's method in reports."""
    search = config.search
    if config.run.label:
        return config.run.label
    score = "" if config.task.score == "reward" else f", {config.task.score}"
    matched = ", matched tokens" if search.match_tokens else ""
    return f"{search.search}{score}{matched}"


def load_comparable(folders: Sequence[Path], watch: Meter = lambda stage, done, total: None) -> list[Run]:
    """Return runs that were evaluated on the same instances.

    Args:
        folders: Of the runs.
        watch: See `Meter`; counts the runs that were read.

    Raises:
        CheckpointError: A folder holds no evaluated run.
        ConfigError: There is no folder, or the runs were evaluated on different instances.
    """
    if not folders:
        raise ConfigError("wanted the folder of at least one run")
    runs = []
    for number, folder in enumerate(folders, 1):
        runs.append(load_run(folder))
        watch("runs", number, len(folders))
    for folder, run in zip(folders, runs, strict=True):
        if _instances_of(run) != _instances_of(runs[0]):
            raise ConfigError(f"{folder} was evaluated on other instances than {folders[0]}: report them apart")
    return runs


def _instances_of(run: Run) -> tuple[Any, ...]:
    """Return the settings that determine the held-out instances of a run."""
    task = run.config.task.held_out
    settings = parse_settings(task.env_set)
    return env_id(run.config.env), task.preset, settings, task.eval_split, run.evaluations[0]["instances"]


def runs_by_method(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs of each method by its name.

    Raises:
        ConfigError: Two runs of a method have the same seed, so one of them is a repetition.
    """
    methods: dict[str, list[Run]] = {}
    settings = [dict(_settings(asdict(run.config))) for run in runs]
    for run, own in zip(runs, settings, strict=True):
        # Runs that share a label but not all settings are different methods: their names get the settings that differ.
        same_label = [other for twin, other in zip(runs, settings, strict=True) if twin.label == run.label]
        differing = [name for name in own if any(other[name] != own[name] for other in same_label)]
        words = [f"{name.rpartition('.')[2]}={own[name]}" for name in differing]
        methods.setdefault(", ".join([run.label, *words]), []).append(run)
    for name, members in methods.items():
        by_seed: dict[int, Run] = {}
        for run in members:
            twin = by_seed.setdefault(run.config.run.seed, run)
            if twin is not run:
                raise ConfigError(
                    f"{twin.folder} and {run.folder} are both seed {run.config.run.seed} of {name}: report one of them"
                )
    return methods


def _settings(section: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings that define a method, by section and name."""
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{path}{name}.")
        elif path + name == "search.match_tokens":
            # Each seed matches the tokens of another run, so only the use of the setting counts.
            yield "match_tokens", value is not None
        elif path + name not in _NO_METHOD:
            yield path + name, value


# Points at which pairs are compared: shares of the cost of the shorter run of a pair.
SHARES = {"1/2": 0.5, "3/4": 0.75, "1": 1.0}


@dataclass(frozen=True, slots=True)
class Difference:
    """The gain of a method over a control, in percentage points.

    Attributes:
        method: Its name.
        control: Name of the control.
        at: Share of the equal cost at which both are compared, ``"1"`` for all of it; ``"end"`` for the ends of runs,
            where those of some pair are further apart than a group.
        seeds: Of the pairs.
        instances: Distinct held-out instances; 1 where runs do not record which of them were solved.
        success: Mean success of the method over distinct instances, in percent.
        control_success: Of the control.
        points: The difference.
        low: Lower end of its 95 % interval over seeds and instances (`crossed_mean`); None for fewer than three pairs.
        high: Upper end.
        spent: Cost of the method's training up to there, mean over the pairs; None where a run does not record it.
        control_spent: Of the control.
    """

    method: str
    control: str
    at: str
    seeds: tuple[int, ...]
    instances: int
    success: float
    control_success: float
    points: float
    low: float | None
    high: float | None
    spent: dict[Cost, float | None]
    control_spent: dict[Cost, float | None]


def differences(
    methods: Mapping[str, Sequence[Run]], *, against: str | None = None, equal: Cost = "sampled_tokens"
) -> list[Difference]:
    """Return the gain of each method over the control, at some shares of an equal cost.

    Seeds that only one of the two has finished are left out.

    Args:
        methods: Runs by method, evaluated on the same instances.
        against: Name or label of the control; None for the first method.
        equal: The cost at which both are compared.

    Raises:
        ConfigError: There is no such control.
        CheckpointError: A run does not record its cost, or its record of solved instances is damaged.
    """
    control = _control(methods, against)
    gains = []
    for name, members in methods.items():
        theirs = {run.config.run.seed: run for run in methods[control] if run.is_finished}
        pairs = [
            (run, theirs[run.config.run.seed]) for run in members if run.is_finished and run.config.run.seed in theirs
        ]
        if name != control and pairs:
            gains += _compared(name, control, sorted(pairs, key=lambda pair: pair[0].config.run.seed), equal)
    return gains


def _control(methods: Mapping[str, Sequence[Run]], against: str | None) -> str:
    if against is None:
        return next(iter(methods))
    named = [name for name, members in methods.items() if against in (name, members[0].label)]
    if len(named) != 1:
        raise ConfigError(f"against: wanted one of the methods {', '.join(methods)}, got {against!r}")
    return named[0]


def _compared(name: str, control: str, pairs: Sequence[tuple[Run, Run]], equal: Cost) -> list[Difference]:
    by_instance = all(record.get("won") for pair in pairs for run in pair for record in run.evaluations)
    places = [_places(pair, equal) for pair in pairs]
    # Where a run continued after its partner, their ends have different costs and are compared separately.
    far = any(place["1"] != place["end"] for place in places)
    gains = []
    for at in (*SHARES, "end") if far else SHARES:
        mine, theirs = (
            [(pair[side], place[at][side]) for pair, place in zip(pairs, places, strict=True)] for side in (0, 1)
        )
        won, lost = (
            100 * np.array([_solved(run, place, by_instance) for run, place in side]) for side in (mine, theirs)
        )
        interval = crossed_mean(won - lost)
        gains.append(
            Difference(
                method=name,
                control=control,
                at=at,
                seeds=tuple(run.config.run.seed for run, _ in mine),
                instances=won.shape[1],
                success=float(won.mean()),
                control_success=float(lost.mean()),
                points=float((won - lost).mean()),
                low=None if interval is None else interval.low,
                high=None if interval is None else interval.high,
                spent=_spent_by(mine),
                control_spent=_spent_by(theirs),
            )
        )
    return gains


def _places(pair: tuple[Run, Run], equal: Cost) -> dict[str, tuple[float, ...]]:
    """Return the places at which both runs of a pair are read, at each share and at their ends.

    A place counts evaluations, with fractions between them. Runs that end by their cost can end a group apart, so a run
    that spent at most a group more than its partner is read at its end and not before it.
    """
    axes = [_axis(run, equal) for run in pair]
    budget = min(axis[-1] for axis in axes)
    ends = tuple(float(len(axis) - 1) for axis in axes)
    places = {
        at: tuple(float(np.interp(share * budget, axis, range(len(axis)))) for axis in axes)
        for at, share in SHARES.items()
    }
    near = [axis[-1] - budget <= group_cost(run, equal) for run, axis in zip(pair, axes, strict=True)]
    last = tuple(end if is_near else place for end, place, is_near in zip(ends, places["1"], near, strict=True))
    return {**places, "1": last, "end": ends}


def group_cost(run: Run, cost: Cost) -> float:
    """Return the mean cost of a group of a run, in its most expensive update; 0 where it is not recorded."""
    costs = [(_cost_of(update, cost), update.get("groups")) for update in run.updates]
    return max((taken / groups for taken, groups in costs if taken is not None and groups), default=0.0)


def _spent_by(side: Sequence[tuple[Run, float]]) -> dict[Cost, float | None]:
    """Return the costs of some runs at some places, mean over the runs; None where a run does not record one."""
    means: dict[Cost, float | None] = {}
    for cost in COSTS:
        axes = [spent(run, cost) for run, _ in side]
        values = [
            float(np.interp(place, range(len(axis)), axis))
            for (_, place), axis in zip(side, axes, strict=True)
            if axis is not None
        ]
        means[cost] = fmean(values) if len(values) == len(side) else None
    return means


def spent(run: Run, cost: Cost) -> list[float] | None:
    """Return the training cost of a run at each of its evaluations; None where it is not recorded."""
    if cost == "sampled_tokens":
        return [float(record["sampled_tokens_total"]) for record in run.evaluations]
    costs = [_cost_of(update, cost) for update in run.updates]
    totals = accumulate(0.0 if taken is None else taken for taken in costs)
    after = {0: 0.0} | dict(zip([update["step"] for update in run.updates], totals, strict=True))
    if None in costs or any(record["step"] not in after for record in run.evaluations):
        return None
    return [after[record["step"]] for record in run.evaluations]


def _axis(run: Run, cost: Cost) -> list[float]:
    axis = spent(run, cost)
    if axis is None:
        raise CheckpointError(f"{run.folder}: its metrics.jsonl does not record {cost}: choose another --equal")
    return axis


def _cost_of(update: Mapping[str, Any], cost: Cost) -> float | None:
    """Return the cost of an update; None where it is not recorded."""
    if cost == "seconds":
        return float(update["seconds"]["all"])
    if cost == "optimizer_steps":
        # An update without any group to learn from takes no step and records none.
        return float(update.get(cost) or 0)
    return None if update.get(cost) is None else float(update[cost])


def _solved(run: Run, place: float, by_instance: bool) -> NDArray[np.float64]:
    """Return the success on each distinct instance `[I]` at a place, or, without `by_instance`, the mean as `[1]`."""
    first = int(place)
    before, after = (
        _by_instance(run, record) if by_instance else np.array([record["success"]])
        for record in (run.evaluations[first], run.evaluations[min(first + 1, len(run.evaluations) - 1)])
    )
    share = place - first
    return (1 - share) * before + share * after


def _by_instance(run: Run, record: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return the success on each distinct instance, the mean over instances that are equal up to symmetry."""
    won = np.array([mark == "1" for mark in record["won"]], dtype=float)
    distinct = np.arange(record["instances"])
    try:
        for number, same in record["twins"]:
            distinct[number] = same
        _, distinct = np.unique(distinct, return_inverse=True)
        return np.bincount(distinct, won) / np.bincount(distinct)
    except (LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{run.folder}: the evaluation of step {record['step']} is damaged ({error})") from error
