"""Options of the campaigns, fixtures that they share with the agents' tests, and the counts at the end of a run."""

import json
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.agents.conftest import base_model, chat_model, tokenizer, undisturbed  # noqa: F401
from tests.conftest import ROOT

_counts = []


def pytest_addoption(parser):
    parser.addoption("--abuse-times", type=int, default=1, metavar="N", help="how many times the sampled counts")
    parser.addoption("--abuse-seed", type=int, default=0, metavar="N", help="seed of all attacks")
    parser.addoption("--abuse-json", metavar="PATH", help="where to write what came of every campaign")


@pytest.fixture
def hold(request, record_property):
    """Run a campaign, record its counts, and require that no attack was wrong or crashed."""

    def run(name, campaign, sampled):
        times = request.config.getoption("--abuse-times", 1)
        counts = campaign(sampled * times, request.config.getoption("--abuse-seed", 0))
        record_property("abuse", (name, asdict(counts)))
        assert (counts.wrong, counts.crashed) == (0, 0), "\n".join(counts.faults)
        assert counts.tried >= sampled * times
        return counts

    return run


def pytest_runtest_logreport(report):
    if report.when == "call":
        _counts.extend(value for name, value in report.user_properties if name == "abuse")


def pytest_terminal_summary(terminalreporter, config):
    if not _counts:
        return
    campaigns = {name: {key: number for key, number in counts.items() if key != "faults"} for name, counts in _counts}
    terminalreporter.section("the campaigns")
    for name, counts in campaigns.items():
        terminalreporter.write_line(f"{name:24} {'  '.join(f'{key} {number}' for key, number in counts.items())}")
    if path := config.getoption("--abuse-json", None):
        text = json.dumps({**_circumstances(config), "counts": dict(sorted(campaigns.items()))}, indent=1)
        Path(path).write_text(text + "\n", encoding="utf-8")


def _circumstances(config):
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit.stdout.strip() or None,
        "times": config.getoption("--abuse-times", 1),
        "seed": config.getoption("--abuse-seed", 0),
    }
