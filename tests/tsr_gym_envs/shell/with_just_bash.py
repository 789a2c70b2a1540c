r"""just-bash's own tests against the closed shell: a plug-in that puts our shell in the place of its class ``Bash``.

Run in the unpacked source distribution of just-bash, without those tests that reach the network or real files:

    pip download --no-deps --no-binary :all: just-bash==0.2.1 && tar xzf just_bash-0.2.1.tar.gz && cd just_bash-0.2.1
    PYTHONPATH=CHECKOUT python -m pytest -o addopts= -p tests.tsr_gym_envs.shell.with_just_bash \
      tests/test_commands tests/test_interpreter tests/test_query_engine

Every command begins from the value of the session after the command before it. Tests of commands that the closed shell
leaves out, and of settings that it does not have, are skipped.
"""

import asyncio
import inspect
import os

import just_bash
import pytest

from tsr_gym.codec import digest
from tsr_gym_envs.shell.closed import ABSENT, closed_library, drive
from tsr_gym_envs.shell.files import FileSystem, beginning
from tsr_gym_envs.shell.session import VARIABLES, Refused, Session, ShellLimits, run

# A file for the digest of every result, to compare processes with different hashes of texts.
LOG = os.environ.get("SHELL_LOG")
LIMITS = ShellLimits(max_steps=1 << 40, max_commands=100_000, max_output=1 << 24, max_bytes=1 << 28)


class ClosedBash:
    """just-bash's class, over a value."""

    def __init__(self, *, files=None, cwd="/home/user", env=None, unescape_html=True, **others):
        if others:
            pytest.skip(f"the closed shell has no {sorted(others)}")
        contents = {
            path: text if isinstance(text, str) else text.decode("latin-1") for path, text in (files or {}).items()
        }
        variables = {**VARIABLES, "PWD": cwd, **(env or {})}
        names = tuple(sorted(variables))
        attributes = tuple((name, "x", None) for name in sorted(variables) if name != "?")
        files = beginning(contents, {})
        self.session = Session(files, cwd, "", names, tuple(variables[name] for name in names), attributes)
        self.fs = self._opened()

    async def exec(self, script, *, env=None, cwd=None):
        if any(name in script.split() for name in ABSENT):
            pytest.skip("the closed shell leaves the command out")
        values = dict(zip(self.session.names, self.session.values, strict=True)) | (env or {})
        names = tuple(sorted(values))
        session = self.session._replace(
            files=self.fs.value(),
            folder=cwd or self.session.folder,
            names=names,
            values=tuple(values[name] for name in names),
        )
        try:
            result = run(session, script, LIMITS)
        except Refused as error:
            raise AssertionError(f"refused: {error}") from error
        if LOG:
            with open(LOG, "a", encoding="utf-8") as log:
                log.write(f"{script!r} {digest(result)}\n")
        self.session = result.session
        self.fs = self._opened()
        return just_bash.ExecResult(result.printed, result.errors, result.status, self.env)

    def _opened(self):
        meter = closed_library().meter
        meter.begin(1 << 40, 1 << 30, 0, 0)
        return FileSystem(self.session.files, meter, 1 << 30)

    def run(self, script, **options):
        return drive(self.exec(script, **options))

    @property
    def env(self):
        return dict(zip(self.session.names, self.session.values, strict=True))

    @property
    def cwd(self):
        return self.session.folder


just_bash.Bash = just_bash.bash.Bash = ClosedBash


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True
