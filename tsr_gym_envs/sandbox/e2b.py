"""E2BBackend: a sandbox of E2B, or of a server that its client reaches; a snapshot is one of E2B's.

Written after the client ``e2b`` 2.63 and tested against a stub of it, not against the service.
"""

import base64
import os
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tsr_gym.optional import require
from tsr_gym.ranges import check_range
from tsr_gym_envs.sandbox.backend import (
    DIGEST_COMMAND,
    CommandStopped,
    Ran,
    SandboxFailed,
    SandboxFile,
    timed,
    unpacked,
)
from tsr_gym_envs.sandbox.docker import TIMED_OUT


class E2BBackend:
    """A sandbox that E2B's client makes; it goes back by a new sandbox of a snapshot.

    The template needs bash, timeout, tar, base64, and find, sort, xargs and sha256sum of GNU. The digest covers the
    folder alone. A command that exits with 124 or 137 counts as one that reached its time.

    Args:
        template: The template of the first sandbox; None for the client's default.
        folder: The folder of work.
        max_seconds: Wall-clock time of a command.
        lifetime: Seconds after which the service ends a sandbox that was not replaced.
        client: The class ``Sandbox`` of the client, or one with its methods; None imports it from ``e2b``.

    Raises:
        MissingExtra: The client is not installed.
    """

    def __init__(
        self,
        template: str | None = None,
        folder: str = "/home/user/work",
        *,
        max_seconds: float = 60.0,
        lifetime: int = 3600,
        client: Any = None,
    ) -> None:
        check_range(max_seconds=max_seconds, lifetime=lifetime, above=0)
        self.folder, self.max_seconds, self.lifetime = folder, max_seconds, lifetime
        self._client = _client() if client is None else client
        self._sandbox: list[Any] = []
        self._snapshots: list[str] = []
        self._end = weakref.finalize(self, _end, self._client, self._sandbox, self._snapshots, os.getpid())
        self._start(template)
        self._shell(f"mkdir -p '{folder}'", "/")

    def snapshot(self) -> str:
        """Return a handle to the present contents: the id of a snapshot."""
        name = str(_asked("create_snapshot", self._sandbox[-1].create_snapshot).snapshot_id)
        self._snapshots.append(name)
        return name

    def restore(self, handle: str) -> None:
        """Replace the sandbox by a new one of the snapshot."""
        self._start(handle)
        _asked("kill", self._sandbox[0].kill)
        del self._sandbox[0]

    def delete(self, handle: str) -> None:
        """Delete a snapshot."""
        _asked("delete_snapshot", self._client.delete_snapshot, handle)
        self._snapshots.remove(handle)

    def digest(self) -> bytes:
        """Return a digest of the folder."""
        return self._shell(DIGEST_COMMAND, self.folder).output.strip().encode()

    def run(self, command: str) -> Ran:
        """Run a command by a new ``bash`` in the folder.

        Raises:
            CommandStopped: It took too long.
            SandboxFailed: The client or the service failed.
        """
        ran = self._shell(timed(command, self.max_seconds), self.folder)
        if ran.status in TIMED_OUT:
            raise CommandStopped(f"it took more than {self.max_seconds:g} s")
        return ran

    def put(self, files: Mapping[str, SandboxFile]) -> None:
        """Write files, by their paths below the folder."""
        for path, file in files.items():
            place = f"{self.folder}/{path}"
            _asked("files.write", self._sandbox[-1].files.write, place, file.content)
            self._shell(f"chmod {file.mode:o} '{place}'", "/")

    def files(self) -> dict[str, SandboxFile]:
        """Return the regular files in the folder, by their paths below it."""
        return unpacked(base64.b64decode(self._shell("tar -cf - . | base64", self.folder).output))

    def close(self) -> None:
        """End the sandbox and delete all snapshots."""
        self._end()

    def _start(self, template: str | None) -> None:
        self._sandbox.append(_asked("create", self._client.create, template, timeout=self.lifetime))

    def _shell(self, script: str, folder: str) -> Ran:
        """Run a script; the client raises an error for an exit status other than 0, so the output ends with it."""
        timeout = self.max_seconds + 60
        ran = _asked(
            "commands.run", self._sandbox[-1].commands.run, f'( {script}\n); echo " $?"', cwd=folder, timeout=timeout
        )
        output, _, status = str(ran.stdout).rpartition(" ")
        return Ran(output, int(status))


def _client() -> Any:
    require("e2b", "e2b")
    from e2b import Sandbox

    return Sandbox


def _asked(name: str, call: Any, *given: Any, **settings: Any) -> Any:
    try:
        return call(*given, **settings)
    # The client has errors of several families, and those of its HTTP library.
    except Exception as error:
        raise SandboxFailed(f"E2B's {name} failed: {type(error).__name__}: {error!s:.300}") from error


def _end(client: Any, sandboxes: list[Any], snapshots: list[str], pid: int) -> None:
    if pid != os.getpid():
        return
    calls = [(sandbox.kill,) for sandbox in sandboxes] + [
        (client.delete_snapshot, name) for name in reversed(snapshots)
    ]
    for call, *given in calls:
        with suppress(SandboxFailed):
            _asked("end", call, *given)
    sandboxes.clear()
    snapshots.clear()
