"""The plug-in for pytest: environments that the command line or the ini file names are checked as tests.

It also has fixtures for your tests: `check_snapshot` for environments and `check_engine` for engines.

Without a target it does nothing. Loading it imports only ``tsr_gym``, which is mostly Gymnasium.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import pytest

NAME = "check_snapshot"
T = TypeVar("T")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the ini setting."""
    group = parser.getgroup("tsr-gym", "snapshots of Gymnasium environments")
    group.addoption(
        "--check-snapshot",
        action="append",
        default=[],
        metavar="TARGET",
        help="check that snapshots of an environment are exact; an id of Gymnasium, 'module:id', or 'module:function' "
        "with a function that makes it (repeatable)",
    )
    group.addoption(
        "--check-snapshot-steps", type=int, default=12, metavar="N", help="most steps of an episode (default: 12)"
    )
    group.addoption(
        "--check-snapshot-one-process",
        action="store_true",
        help="leave out the replay in two other processes, which takes some seconds per environment",
    )
    parser.addini(NAME, type="linelist", help="targets of --check-snapshot, one a line; checked in runs of folders")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Append a test per target, before -k and -m select among all tests."""
    targets = dict.fromkeys(config.getoption("--check-snapshot"))
    if all((config.invocation_params.dir / arg).is_dir() for arg in config.args):
        targets |= dict.fromkeys(config.getini(NAME))
    if targets:
        checks = SnapshotChecks.from_parent(session, name=NAME, nodeid=NAME)
        checks.targets = tuple(targets)
        items.extend(checks.collect())


@pytest.fixture(name=NAME)
def check_snapshot_fixture() -> Callable[..., None]:
    """`tsr_gym.testing.check_snapshot`, whose failures show the test's own line and the difference."""
    from tsr_gym.testing.check_snapshot import check_snapshot

    return _without_its_steps(check_snapshot)


@pytest.fixture(name="check_engine")
def check_engine_fixture() -> Callable[..., dict[str, str]]:
    """`tsr_gym.testing.check_engine`, whose failures show the test's own line and the engine's fault."""
    from tsr_gym.testing.check_engine import check_engine

    return _without_its_steps(check_engine)


def _without_its_steps(conformance: Callable[..., T]) -> Callable[..., T]:
    """Return a check whose failures leave out its internal traceback."""
    from tsr_gym.errors import CheckFailed

    @wraps(conformance)
    def check(*args: Any, **settings: Any) -> T:
        __tracebackhide__ = True
        try:
            return conformance(*args, **settings)
        except CheckFailed as error:
            raise error.with_traceback(None) from None

    return check


class SnapshotChecks(pytest.Collector):
    """The environments of a run, as one collector, so that a test is called ``check_snapshot::CartPole-v1``."""

    targets: tuple[str, ...] = ()

    def collect(self) -> Iterator["SnapshotItem"]:
        """Return a test per environment."""
        for target in self.targets:
            yield SnapshotItem.from_parent(self, name=target)


class SnapshotItem(pytest.Item):
    """The test that snapshots of one environment are exact."""

    def runtest(self) -> None:
        """Make the environment and check it."""
        from tsr_gym.testing.check_snapshot import check_snapshot

        env, factory = made_from(self.name)
        check_snapshot(
            env,
            steps=self.config.getoption("--check-snapshot-steps"),
            factory=factory,
            other_processes=not self.config.getoption("--check-snapshot-one-process"),
        )
        env.close()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **kwargs: Any) -> Any:
        """Return the message of a failed check; other errors are shown with their traceback."""
        from tsr_gym.errors import CheckFailed

        if isinstance(excinfo.value, CheckFailed):
            return f"{self.name}: {excinfo.value}"
        return super().repr_failure(excinfo, *args, **kwargs)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the heading of a failure report."""
        return self.path, None, f"{NAME}::{self.name}"


def made_from(target: str) -> tuple[Any, str | None]:
    """Return the environment of a target, and the factory that makes it again; None for an id."""
    import gymnasium as gym

    module, _, name = target.partition(":")
    if name.isidentifier() and callable(make := vars(import_module(module)).get(name)):
        return make(), target
    return gym.make(target), None
