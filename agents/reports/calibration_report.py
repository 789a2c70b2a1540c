"""The report of a calibration: tables, a plot and JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tsr_gym.agents.episodes.intervals import Interval
from tsr_gym.agents.reports.calibrate_env import Calibration, SettingResult
from tsr_gym.agents.reports.report import Table


def tables(found: Calibration) -> list[Table]:
    """Return a report's tables: how scores rank, what searches drop, and what they gain."""
    exact = [_ranking(found), _drops(found)] if found.siblings is not None else []
    return [*exact, _gains(found)]


def heading(found: Calibration) -> str:
    """Return what was calibrated, in a line."""
    config = found.config
    player = "random play" if config.model == "random" else f"{config.model} at temperature {config.at_temperature:g}"
    times = "" if config.seeds == 1 else f" x {config.seeds} seeds"
    repeats = "" if config.repeats == 1 else f" x {config.repeats} draws"
    repeats += "" if config.risk is None else f", quantile {config.risk:g}"
    split = "" if config.split is None else f", split {config.split}"
    seen = " (clairvoyant)" if config.noise == "same" else ""
    return (
        f"{config.score} on {config.env}, preset {config.preset}{split}, {config.instances} instances{times}; "
        f"candidates by {player}, noise {config.noise}{repeats}{seen}"
    )


def _ranking(found: Calibration) -> Table:
    siblings = found.siblings
    assert siblings is not None
    rows: list[tuple[str, ...]] = [
        (f"turn {row.turn}", f"{row.states:,}", f"{row.value:.3f}", _number(row.spearman), _number(row.kendall))
        for row in found.turns
    ]
    rows.append(
        ("among candidates", f"{siblings.sets:,} sets", "", _number(siblings.spearman), _number(siblings.kendall))
    )
    lost, chance = (_number(one, digits=3) for one in (siblings.lost, siblings.lost_by_chance))
    return Table(
        "score against exact value, along the policy's own play",
        f"{found.config.candidates} candidates a place; {siblings.decided:,} further sets have equal values. The "
        f"best-scored candidate loses {lost} of value, a random one {chance}.",
        ("", "states", "mean value", "Spearman", "Kendall's tau-b"),
        rows,
    )


def _drops(found: Calibration) -> Table:
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
        for setting in found.settings
        if setting.drops is not None and setting.siblings is not None
    ]
    return Table(
        "what a search from the start drops and keeps",
        "A prefix is an episode that goes on. Winnable: its value is above 0; a search that drops at random drops as "
        "many winnable ones as there are.",
        ("search", "tau-b", "dropped", "winnable %", "of all %", "kept", "dead %", "value lost a turn"),
        rows,
    )


def _gains(found: Calibration) -> Table:
    alone = "policy alone", _percent(found.alone), "", *_price(found.alone_env_steps, found.alone_sampled_tokens)
    rows: list[tuple[str, ...]] = [
        (one.label, _percent(one.success), _percent(one.gain, "+"), *_price(one.env_steps, one.sampled_tokens))
        for one in found.settings
    ]
    optimal = "not known" if found.optimal is None else f"{100 * found.optimal:.1f} %"
    return Table(
        "success of played episodes, a search before every turn",
        f"Random play: {_percent(found.random)} %; best possible on these instances: {optimal}. Intervals: 95 % over "
        "instances.",
        ("search", "success %", "above the policy", "steps an episode", "tokens"),
        [alone, *rows],
    )


def _price(env_steps: float, tokens: float) -> tuple[str, str]:
    """Return what an episode costs; a policy without a model has no tokens."""
    return f"{env_steps:.1f}", f"{tokens:,.0f}" if tokens else ""


def _number(estimate: Interval | float | None, digits: int = 2, sign: str = "-") -> str:
    """Return an estimate with its interval, a dash for None."""
    if estimate is None:
        return "-"
    mean, *ends = [f"{number:{sign}.{digits}f}" for number in np.atleast_1d(estimate)]
    return f"{mean} [{', '.join(ends)}]" if ends else mean


def _percent(estimate: Interval | None, sign: str = "-") -> str:
    """Return an estimate in percent, without its interval where it is exact."""
    if estimate is None:
        return "-"
    exact = estimate.low == estimate.mean == estimate.high and sign != "+"
    return _number(100 * estimate.mean if exact else Interval(*(100 * end for end in estimate)), 1, sign)


def save(found: Calibration, folder: Path) -> list[Path]:
    """Write ``calibration.json`` and ``calibration.png`` into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers, picture = folder / "calibration.json", folder / "calibration.png"
    numbers.write_text(json.dumps({"what": heading(found), **asdict(found)}, indent=2) + "\n")
    draw(found, picture)
    return [numbers, picture]


def draw(found: Calibration, out: Path) -> None:
    """Draw how scores rank by turn, what searches drop, and success against budget, and save a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    exact = found.siblings is not None
    figure, panels = pyplot.subplots(1, 3 if exact else 1, figsize=(16 if exact else 6, 4.5), layout="constrained")
    panels = panels if exact else [panels]
    if exact:
        _draw_ranking(found, panels[0])
        _draw_drops(found, panels[1])
    _draw_gains(found, panels[-1])
    figure.suptitle(heading(found), fontsize=9)
    figure.savefig(out, dpi=150)
    pyplot.close(figure)


def _draw_ranking(found: Calibration, panel: Any) -> None:
    known = [(row.turn, row.spearman, row.kendall) for row in found.turns if row.spearman is not None]
    turns = [turn for turn, *_ in known]
    _draw_line(panel, turns, [spearman for _, spearman, _ in known], "Spearman, by turn")
    panel.plot(turns, [kendall for *_, kendall in known], "s:", color="C1", label="tau-b, by turn")
    siblings = found.siblings
    assert siblings is not None
    if siblings.kendall is not None:
        panel.axhline(siblings.kendall.mean, color="C2", label="tau-b among candidates")
        panel.axhspan(siblings.kendall.low, siblings.kendall.high, color="C2", alpha=0.2)
    panel.axhline(0, color="grey", linewidth=0.8)
    panel.set(xlabel="turn", ylabel="rank correlation of score and value", xticks=turns, ylim=(-1.05, 1.05))
    panel.legend(fontsize=8)


def _draw_drops(found: Calibration, panel: Any) -> None:
    for number, (name, settings) in enumerate(_by_width(found)):
        drops = [(setting.budget, setting.drops) for setting in settings if setting.drops is not None]
        for marker, what, shares in (
            ("o-", "dropped but winnable", [(budget, one.winnable_dropped) for budget, one in drops]),
            ("s:", "kept but dead", [(budget, one.dead_kept) for budget, one in drops]),
        ):
            points = [(budget, 100 * share.mean) for budget, share in shares if share is not None]
            xs, ys = [budget for budget, _ in points], [share for _, share in points]
            panel.plot(xs, ys, marker, color=f"C{number}", label=f"{what}, {name}")
    budgets = found.config.budgets
    panel.set_xscale("log", base=2)
    panel.set_xticks(budgets, labels=map(str, budgets))
    panel.set(xlabel=found.budget, ylabel="% of prefixes", ylim=(-2, 102))
    panel.legend(fontsize=8)


def _draw_gains(found: Calibration, panel: Any) -> None:
    for number, (name, settings) in enumerate(_by_width(found)):
        steps = [setting.env_steps for setting in settings]
        _draw_line(panel, steps, [setting.success for setting in settings], name, color=f"C{number}", scale=100)
    _draw_line(panel, [found.alone_env_steps], [found.alone], "policy alone", color="black", scale=100)
    panel.axhline(100 * found.random.mean, color="grey", linestyle=":", label="random play")
    if found.optimal is not None:
        panel.axhline(100 * found.optimal, color="grey", linestyle="--", label="best possible")
    panel.set(xlabel="environment steps per episode", ylabel="success of played episodes, %", xscale="log")
    panel.legend(fontsize=8)


def _draw_line(
    panel: Any, places: Sequence[float], estimates: Sequence[Interval], label: str, color: str = "C0", scale: float = 1
) -> None:
    means = [scale * one.mean for one in estimates]
    below = [scale * (one.mean - one.low) for one in estimates]
    above = [scale * (one.high - one.mean) for one in estimates]
    # An interval from resampling may lie wholly on one side of the estimate.
    spread = [[max(0.0, end) for end in ends] for ends in (below, above)]
    panel.errorbar(places, means, yerr=spread, marker="o", capsize=3, color=color, label=label)


def _by_width(found: Calibration) -> list[tuple[str, list[SettingResult]]]:
    """Return the searches of each width, with a name."""
    widths = dict.fromkeys(setting.width for setting in found.settings)
    return [
        (
            found.config.search if width is None else f"width {width}",
            [setting for setting in found.settings if setting.width == width],
        )
        for width in widths
    ]
