"""Training runs that are killed at any moment and resumed: equal to an undisturbed run to the last bit."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from tests.abuse.counts import Counts, Outcome, attacked, counted
from tests.agents.short_runs import UPDATES, result, train_and_kill, train_flags
from tsr_gym.agents.runs.trainer import resume_run


def campaign(count: int, seed: int, whole: dict[str, Any], base_model: Path) -> Counts:
    """Return what comes of killing runs, at most three times each; the moments differ each time.

    Args:
        count: How many kills.
        seed: Of the moments, which the load of the machine moves.
        whole: What an undisturbed run results in.
        base_model: The model that it begins with.
    """
    return counted(_attacks(count, np.random.default_rng(seed), whole, base_model))


def _attacks(count: int, rng: np.random.Generator, whole: dict[str, Any], base_model: Path) -> Iterator[Outcome]:
    left = count
    while left > 0:
        with TemporaryDirectory() as home:
            run = Path(home) / "run"
            moments = [(int(rng.integers(UPDATES - 2)), rng.uniform(0, 0.2)) for _ in range(min(left, 3))]
            killed = 0
            for moment in moments:
                args = train_flags(run, base_model) if not run.exists() else ["train", "--resume", run]
                killed += train_and_kill(args, run, *moment)
            # One that had ended before its moment came was not killed, and counts for nothing.
            left -= killed
            ended = attacked(f"killed at {moments}", lambda run=run: _goes_on(run, whole), ())
            yield from [ended] * killed


def _goes_on(run: Path, whole: dict[str, Any]) -> bool:
    return resume_run(run).run() and result(run) == whole


@pytest.fixture(scope="module")
def whole(undisturbed):
    return result(undisturbed)


def test_a_run_that_is_killed_at_any_moment_goes_on_to_the_same_end(hold, whole, base_model):
    counts = hold("kills of a run", lambda count, seed: campaign(count, seed, whole, base_model), 2)
    # A kill is nothing that may be refused.
    assert counts.refused == 0
    assert counts.right == counts.tried
