"""What all tests share: the folder of golden cases beside the project, and hypothesis without deadlines."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
NOT_THERE = f"the golden cases and data of this project are not there: wanted the folder {SHARED}"

# Fixtures of the checkers are imported by name, also in child processes.
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

settings.register_profile("house", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("house")


@pytest.fixture(scope="session")
def shared():
    """The folder ../shared; the test is skipped where it is not there."""
    if not SHARED.is_dir():
        pytest.skip(NOT_THERE)
    return SHARED


@pytest.fixture(scope="session")
def golden(shared):
    """Read the rows of a file of golden cases, named by its path below ../shared/golden."""

    def rows(path):
        return [json.loads(line) for line in (shared / "golden" / path).read_text(encoding="utf-8").splitlines()]

    return rows
