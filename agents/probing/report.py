"""Reports of calibrations and probes: tables, plots, rows for programs, and one sentence of advice."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tsr_gym.agents.episodes.intervals import Interval, Price
from tsr_gym.agents.probing.calibrate import Calibration, SettingResult
from tsr_gym.agents.probing.players import player_in_words
from tsr_gym.agents.probing.probe import PLAIN, Probe, Tally, best_search, label
from tsr_gym.agents.reports.report import Table
from tsr_gym.records import to_json

UNITS = {"sampled_tokens": "sampled tokens", "env_steps": "steps of the environment"}


def calibration_tables(result: Calibration) -> list[Table]:
    """Return the tables of a calibration: how scores rank, which prefixes searches drop, and what they gain."""
    exact = [_ranking(result), _drops(result)] if result.siblings is not None else []
    return [*exact, _gains(result)]


def calibration_heading(result: Calibration) -> str:
    """Return the score, the environment and the player of a calibration, in a line."""
    config = result.config
    times = "" if config.seeds == 1 else f" x {config.seeds} seeds"
    repeats = "" if config.repeats == 1 else f" x {config.repeats} draws"
    repeats += "" if config.risk is None else f", quantile {config.risk:g}"
    world = config.in_words(f"{config.instances} instances{times}")
    player = player_in_words(config.model, config.at_temperature)
    return f"{config.score} on {world}; candidates by {player}, {config.noise_in_words}{repeats}"


def _ranking(result: Calibration) -> Table:
    siblings = result.siblings
    assert siblings is not None
    rows: list[tuple[str, ...]] = [
        (f"turn {row.turn}", f"{row.states:,}", f"{row.value:.3f}", _number(row.spearman), _number(row.kendall))
        for row in result.turns
    ]
    rows.append(
        ("among candidates", f"{siblings.sets:,} sets", "", _number(siblings.spearman), _number(siblings.kendall))
    )
    lost, chance = (_number(value, digits=3) for value in (siblings.lost, siblings.lost_by_chance))
    return Table(
        "score against exact value, along the policy's own play",
        f"{result.config.candidates} candidates a state; {siblings.decided:,} further sets have equal values. The "
        f"best-scored candidate loses {lost} of value, a random one {chance}.",
        ("", "states", "mean value", "Spearman", "Kendall's tau-b"),
        rows,
    )


def _drops(result: Calibration) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            setting.label,
            _number(setting.siblings.kendall),
            f"{setting.drops.dropped:,}",
            _percent(setting.drops.winnable_dropped),
            _percent(setting.drops.winnable),
            f"{setting.drops.kept:,}",
            _percent(setting.drops.dead_kept),
            _number(setting.drops.lost_a_turn, digits=3),
        )
        for setting in result.settings
        if setting.drops is not None and setting.siblings is not None
    ]
    return Table(
        "what a search from the start drops and keeps",
        "A prefix is the path to a state in which the episode is not over. Winnable: its value is above 0. A search "
        "that drops at random has the same share of winnable prefixes among the dropped as among all.",
        ("search", "tau-b", "dropped", "winnable %", "of all %", "kept", "dead %", "value lost a turn"),
        rows,
    )


def _gains(result: Calibration) -> Table:
    alone = "policy alone", _percent(result.alone), "", *_costs(result.alone_env_steps, result.alone_sampled_tokens)
    rows: list[tuple[str, ...]] = [
        (
            search.label,
            _percent(search.success),
            _percent(search.gain, "+"),
            *_costs(search.env_steps, search.sampled_tokens),
        )
        for search in result.settings
    ]
    optimal = "not known" if result.optimal is None else f"{100 * result.optimal:.1f} %"
    return Table(
        "success of played episodes, a search before every turn",
        f"Random play: {_percent(result.random)} %; best possible on these instances: {optimal}. Intervals: 95 % over "
        "instances.",
        ("search", "success %", "above the policy", "steps an episode", "tokens"),
        [alone, *rows],
    )


def _costs(env_steps: float, tokens: float) -> tuple[str, str]:
    """Return the cells of an episode's costs; a policy without a model has no tokens."""
    return f"{env_steps:.1f}", f"{tokens:,.0f}" if tokens else ""


def _number(estimate: Interval | float | None, digits: int = 2, sign: str = "-") -> str:
    """Return an estimate with its interval as text, a dash for None."""
    if estimate is None:
        return "-"
    mean, *ends = [f"{number:{sign}.{digits}f}" for number in np.atleast_1d(estimate)]
    return f"{mean} [{', '.join(ends)}]" if ends else mean


def _percent(estimate: Interval | None, sign: str = "-") -> str:
    """Return an estimate in percent as text, without its interval where it is exact."""
    if estimate is None:
        return "-"
    exact = estimate.low == estimate.mean == estimate.high and sign != "+"
    return _number(100 * estimate.mean if exact else Interval(*(100 * end for end in estimate)), 1, sign)


def save_calibration(result: Calibration, folder: Path) -> list[Path]:
    """Write ``calibration.json`` and ``calibration.png`` into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers, picture = folder / "calibration.json", folder / "calibration.png"
    numbers.write_text(to_json({"what": calibration_heading(result), **asdict(result)}, indent=2) + "\n")
    draw_calibration(result, picture)
    return [numbers, picture]


def draw_calibration(result: Calibration, out: Path) -> None:
    """Draw rank correlations by turn, dropped prefixes, and success against budget, and save a PNG."""
    from matplotlib.figure import Figure

    exact = result.siblings is not None
    figure = Figure(figsize=(16 if exact else 6, 4.5), layout="constrained")
    panels = figure.subplots(1, 3 if exact else 1, squeeze=False)[0]
    if exact:
        _draw_ranking(result, panels[0])
        _draw_drops(result, panels[1])
    _draw_gains(result, panels[-1])
    figure.suptitle(calibration_heading(result), fontsize=9)
    figure.savefig(out, dpi=150)


def _draw_ranking(result: Calibration, panel: Any) -> None:
    rows = [(row.turn, row.spearman, row.kendall) for row in result.turns if row.spearman is not None]
    turns = [turn for turn, *_ in rows]
    _draw_line(panel, turns, [spearman for _, spearman, _ in rows], "Spearman, by turn")
    panel.plot(turns, [kendall for *_, kendall in rows], "s:", color="C1", label="tau-b, by turn")
    siblings = result.siblings
    assert siblings is not None
    if siblings.kendall is not None:
        panel.axhline(siblings.kendall.mean, color="C2", label="tau-b among candidates")
        panel.axhspan(siblings.kendall.low, siblings.kendall.high, color="C2", alpha=0.2)
    panel.axhline(0, color="grey", linewidth=0.8)
    panel.set(xlabel="turn", ylabel="rank correlation of score and value", xticks=turns, ylim=(-1.05, 1.05))
    panel.legend(fontsize=8)


def _draw_drops(result: Calibration, panel: Any) -> None:
    for number, (name, settings) in enumerate(_by_width(result)):
        drops = [(setting.budget, setting.drops) for setting in settings if setting.drops is not None]
        for marker, what, shares in (
            ("o-", "dropped but winnable", [(budget, counts.winnable_dropped) for budget, counts in drops]),
            ("s:", "kept but dead", [(budget, counts.dead_kept) for budget, counts in drops]),
        ):
            points = [(budget, 100 * share.mean) for budget, share in shares if share is not None]
            xs, ys = [budget for budget, _ in points], [share for _, share in points]
            panel.plot(xs, ys, marker, color=f"C{number}", label=f"{what}, {name}")
    budgets = result.config.budgets
    panel.set_xscale("log", base=2)
    panel.set_xticks(budgets, labels=map(str, budgets))
    panel.set(xlabel=result.budget, ylabel="% of prefixes", ylim=(-2, 102))
    panel.legend(fontsize=8)


def _draw_gains(result: Calibration, panel: Any) -> None:
    for number, (name, settings) in enumerate(_by_width(result)):
        steps = [setting.env_steps for setting in settings]
        _draw_line(panel, steps, [setting.success for setting in settings], name, color=f"C{number}", scale=100)
    _draw_line(panel, [result.alone_env_steps], [result.alone], "policy alone", color="black", scale=100)
    panel.axhline(100 * result.random.mean, color="grey", linestyle=":", label="random play")
    if result.optimal is not None:
        panel.axhline(100 * result.optimal, color="grey", linestyle="--", label="best possible")
    panel.set(xlabel="environment steps per episode", ylabel="success of played episodes, %", xscale="log")
    panel.legend(fontsize=8)


def _draw_line(
    panel: Any, places: Sequence[float], estimates: Sequence[Interval], label: str, color: str = "C0", scale: float = 1
) -> None:
    means = [scale * estimate.mean for estimate in estimates]
    below = [scale * (estimate.mean - estimate.low) for estimate in estimates]
    above = [scale * (estimate.high - estimate.mean) for estimate in estimates]
    # An interval from resampling may lie wholly on one side of the estimate, and matplotlib refuses negative lengths.
    spread = [[max(0.0, end) for end in ends] for ends in (below, above)]
    panel.errorbar(places, means, yerr=spread, marker="o", capsize=3, color=color, label=label)


def _by_width(result: Calibration) -> list[tuple[str, list[SettingResult]]]:
    """Return the searches of each width, by the name of the width."""
    widths = dict.fromkeys(setting.width for setting in result.settings)
    return [
        (
            result.config.search if width is None else f"width {width}",
            [setting for setting in result.settings if setting.width == width],
        )
        for width in widths
    ]


def probe_heading(result: Probe) -> str:
    """Return the environment and the player of a probe, in a line."""
    config = result.config
    world = config.in_words(f"{config.instances} instances, seed {config.seed}")
    player = player_in_words(config.model.model, config.model.temperature)
    dead_ends = "" if config.dead_ends == "off" else f", dead ends {config.dead_ends}"
    return f"{world}; {player}, {config.noise_in_words}{dead_ends}"


def probe_rows(result: Probe) -> list[dict[str, Any]]:
    """Return a row per way to play, for programs; prices and upper ends are None where no episode succeeded."""
    return [_json_row(result, tally) for tally in result.tallies]


def _json_row(result: Probe, tally: Tally) -> dict[str, Any]:
    success = tally.success
    row: dict[str, Any] = {
        "search": tally.way.search,
        "score": tally.way.score,
        "success": success.mean,
        "success_interval": [success.low, success.high],
        "instances": len(tally.measured),
        "episodes": tally.total("episodes"),
        "successes": tally.total("successes"),
    }
    for name in ("sampled_tokens", "prompt_tokens", "env_steps"):
        price = tally.price(name)
        short = name.removeprefix("sampled_")
        row |= {name: tally.total(name), f"{short}_per_success": price.mean}
        row[f"{short}_per_success_interval"] = [price.low, price.high]
    return row | {"counts": result.config.counts, "stopped": tally.stopped}


def probe_table(result: Probe) -> Table:
    """Return the table of a probe."""
    counts = result.config.counts
    unit = "" if counts == "sampled_tokens" else " The player has no tokens: its price is in steps of the environment."
    return Table(
        "what a success costs before any learning",
        "Success of a searched path is imagined: training would learn from it, but the policy does not play like that. "
        "Intervals: 95 % over instances. The lowest of several prices is too low by luck; the advice prices the search "
        f"that is best on one half of the instances on the other half.{unit}",
        ("", "success %", "episodes", "sampled", "prompt", f"{UNITS[counts]} per success", ""),
        [
            (
                label(tally.way),
                f"{100 * tally.success.mean:.1f} [{100 * tally.success.low:.1f}, {100 * tally.success.high:.1f}]",
                f"{tally.total('episodes'):,}",
                f"{tally.total('sampled_tokens'):,}",
                f"{tally.total('prompt_tokens'):,}",
                _price(tally.price(counts)),
                "stopped: clearly worse" if tally.stopped else "",
            )
            for tally in result.tallies
        ],
    )


def advice(result: Probe) -> str:
    """Return the recommended way to play, as a sentence."""
    counts = result.config.counts
    unit = UNITS[counts]
    plain = next(tally for tally in result.tallies if tally.way.search == PLAIN)
    alone, cheapest = plain.price(counts), best_search(result.tallies, counts)
    if cheapest is None and alone.mean is None:
        return (
            "Nothing succeeded: try a score that measures progress, larger budgets or easier instances before training "
            "on these."
        )
    if cheapest is None:
        return f"Plain play is enough: a success costs {_words(alone, unit)}, and no search found any."
    best, theirs = cheapest
    against = f"a success costs {_words(theirs, unit)}, by plain play {_words(alone, unit)}"
    # Only separated intervals are a clear answer.
    if theirs.high is not None and theirs.high < alone.low:
        return f"Use {label(best.way)}: {against}."
    others = [tally.price(counts) for tally in result.tallies if tally is not plain]
    if alone.high is not None and all(alone.high < price.low for price in (*others, theirs)):
        return f"Plain play is enough: by the best search, {label(best.way)}, {against}."
    # Without a plain success there is no habit to keep: its price is only known to be above its lower end.
    instead = "Undecided" if alone.mean is None else "Plain play is enough"
    return (
        f"{instead} as far as {result.config.instances} instances show: by the best search, {label(best.way)}, "
        f"{against}, and the intervals overlap; use more --instances to separate them."
    )


def _words(price: Price, unit: str) -> str:
    if price.mean is None:
        return f"more than {price.low:,.0f} {unit} (none succeeded)"
    return f"{price.mean:,.0f} {unit} [{_ends(price)}]"


def _price(price: Price) -> str:
    mean = "none" if price.mean is None else f"{price.mean:,.0f}"
    return f"{mean} [{_ends(price)}]"


def _ends(price: Price) -> str:
    return f"{price.low:,.0f}, {'-' if price.high is None else f'{price.high:,.0f}'}"


def draw_probe(result: Probe, out: Path) -> None:
    """Draw the price of a success by each way to play, with intervals, and save a PNG."""
    from matplotlib.figure import Figure

    counts = result.config.counts
    figure = Figure(figsize=(9, 1.5 + 0.5 * len(result.tallies)), layout="constrained")
    panel = figure.subplots()
    prices = [tally.price(counts) for tally in result.tallies]
    most = 2 * max((end for price in prices for end in price if end), default=1)
    for place, (tally, price) in enumerate(zip(result.tallies, prices, strict=True)):
        color = "black" if tally.way.search == PLAIN else "C0"
        panel.plot([price.low, price.high or most], [place, place], "-", color=color)
        if price.high is None:
            # Without a success there is no upper end: an arrow replaces it.
            panel.plot([most], [place], ">", color=color)
        if price.mean is not None:
            panel.plot([price.mean], [place], "o", color=color)
    names = [f"{label(tally.way)}{' (stopped)' if tally.stopped else ''}" for tally in result.tallies]
    panel.set_yticks(range(len(names)), labels=names, fontsize=8)
    panel.invert_yaxis()
    panel.set(xscale="log", xlabel=f"{UNITS[counts]} per success, 95 % over instances")
    figure.suptitle(probe_heading(result), fontsize=8)
    figure.savefig(out, dpi=150)
