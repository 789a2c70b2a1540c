"""The report of a probe: a table, a plot, rows for programs, and one sentence of advice."""

from pathlib import Path
from typing import Any

from tsr_gym.agents.episodes.intervals import Price
from tsr_gym.agents.reports.probe import PLAIN, Probe, Tally, label
from tsr_gym.agents.reports.report import Table

UNITS = {"sampled_tokens": "sampled tokens", "env_steps": "steps of the environment"}


def heading(found: Probe) -> str:
    """Return what was probed, in a line."""
    config = found.config
    model = config.model
    player = "random play" if model.model == "random" else f"{model.model} at temperature {model.temperature:g}"
    split = "" if config.split is None else f", split {config.split}"
    dead = "" if config.dead_ends == "off" else f", dead ends {config.dead_ends}"
    seen = " (clairvoyant)" if config.noise == "same" else ""
    return (
        f"{config.env}, preset {config.preset}{split}, {config.instances} instances, seed {config.seed}; {player}, "
        f"noise {config.noise}{seen}{dead}"
    )


def rows(found: Probe) -> list[dict[str, Any]]:
    """Return a row per way to play, for programs; prices and upper ends are None where none succeeded."""
    return [_json_row(found, one) for one in found.tallies]


def _json_row(found: Probe, one: Tally) -> dict[str, Any]:
    success = one.success
    row: dict[str, Any] = {
        "search": one.way.search,
        "score": one.way.score,
        "success": success.mean,
        "success_interval": [success.low, success.high],
        "instances": len(one.measured),
        "episodes": one.total("episodes"),
        "successes": one.total("successes"),
    }
    for name in ("sampled_tokens", "prompt_tokens", "env_steps"):
        price = one.price(name)
        short = name.removeprefix("sampled_")
        row |= {name: one.total(name), f"{short}_per_success": price.mean}
        row[f"{short}_per_success_interval"] = [price.low, price.high]
    return row | {"counts": found.config.counts, "stopped": one.stopped}


def table(found: Probe) -> Table:
    """Return the table of a probe."""
    counts = found.config.counts
    told = "" if counts == "sampled_tokens" else " The player has no tokens: its price is in steps of the environment."
    return Table(
        "what a success costs before any learning",
        "Success of a searched path was imagined: it is what training would find, not how the policy plays. Intervals: "
        f"95 % over instances.{told}",
        ("", "success %", "episodes", "sampled", "prompt", f"{UNITS[counts]} per success", ""),
        [
            (
                label(one.way),
                f"{100 * one.success.mean:.1f} [{100 * one.success.low:.1f}, {100 * one.success.high:.1f}]",
                f"{one.total('episodes'):,}",
                f"{one.total('sampled_tokens'):,}",
                f"{one.total('prompt_tokens'):,}",
                _price(one.price(counts)),
                "stopped: clearly worse" if one.stopped else "",
            )
            for one in found.tallies
        ],
    )


def advice(found: Probe) -> str:
    """Return what to use, in a sentence."""
    counts = found.config.counts
    unit = UNITS[counts]
    plain = next(one for one in found.tallies if one.way.search == PLAIN)
    priced = {one.way: one.price(counts) for one in found.tallies}
    searches = [
        (price.mean, one) for one in found.tallies if one is not plain and (price := priced[one.way]).mean is not None
    ]
    alone = priced[plain.way]
    if not searches and alone.mean is None:
        return (
            "Nothing succeeded: try a score that tells progress, larger budgets or easier instances before training on "
            "these."
        )
    if not searches:
        return f"Plain play is enough: a success costs {_words(alone, unit)}, and no search found any."
    _, best = min(searches, key=lambda pair: (pair[0], label(pair[1].way)))
    theirs = priced[best.way]
    against = f"a success costs {_words(theirs, unit)}, by plain play {_words(alone, unit)}"
    if theirs.high is not None and theirs.high < alone.low:
        return f"Use {label(best.way)}: {against}."
    if alone.high is not None and all(alone.high < price.low for way, price in priced.items() if way != plain.way):
        return f"Plain play is enough: by the best search, {label(best.way)}, {against}."
    enough = f"Use {label(best.way)}" if alone.mean is None else "Plain play is enough"
    return (
        f"{enough} as far as {found.config.instances} instances tell: by the best search, {label(best.way)}, "
        f"{against}, and the intervals overlap; more --instances tell more."
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


def draw(found: Probe, out: Path) -> None:
    """Draw what a success costs by each way to play, with intervals, and save a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    counts = found.config.counts
    figure, panel = pyplot.subplots(figsize=(9, 1.5 + 0.5 * len(found.tallies)), layout="constrained")
    prices = [one.price(counts) for one in found.tallies]
    known = [end for price in prices for end in price if end]
    most = 2 * max(known, default=1)
    for place, (one, price) in enumerate(zip(found.tallies, prices, strict=True)):
        color = "black" if one.way.search == PLAIN else "C0"
        panel.plot([price.low, price.high or most], [place, place], "-", color=color)
        if price.high is None:
            # Nobody knows how much more it is.
            panel.plot([most], [place], ">", color=color)
        if price.mean is not None:
            panel.plot([price.mean], [place], "o", color=color)
    names = [f"{label(one.way)}{' (stopped)' if one.stopped else ''}" for one in found.tallies]
    panel.set_yticks(range(len(names)), labels=names, fontsize=8)
    panel.invert_yaxis()
    panel.set(xscale="log", xlabel=f"{UNITS[counts]} per success, 95 % over instances")
    figure.suptitle(heading(found), fontsize=8)
    figure.savefig(out, dpi=150)
    pyplot.close(figure)
