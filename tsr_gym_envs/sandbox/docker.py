"""DockerBackend: a container of Docker; a snapshot is an image that ``docker commit`` makes.

Written after Docker's documentation of its command line, and tested against a program that stands in for it.
"""

import os
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tsr_gym.ranges import check_range
from tsr_gym_envs.sandbox.backend import (
    DIGEST_COMMAND,
    CommandStopped,
    Ran,
    SandboxFailed,
    SandboxFile,
    packed,
    timed,
    unpacked,
)

# Exit statuses of ``timeout``: it sent its signal, or had to kill.
TIMED_OUT = (124, 137)
# What Docker itself may take, on top of the limit of a command.
_DOCKER_SECONDS = 120.0


class DockerBackend:
    """A container in which bash runs commands; it goes back to an image of it.

    The image needs bash, timeout, and find, sort, xargs and sha256sum of GNU. A snapshot holds all files of the
    container, with owners and times, but no volumes and no processes: a background process ends only where the
    environment goes back. The digest covers the folder alone. A command that exits with 124 or 137 counts as one that
    reached its time.

    Args:
        image: The image of the first container.
        folder: The folder of work.
        options: Further options of ``docker run``; without others, the container has no network.
        max_seconds: Wall-clock time of a command.
        program: Docker's program.
    """

    def __init__(
        self,
        image: str,
        folder: str = "/work",
        *,
        options: Sequence[str] = ("--network", "none"),
        max_seconds: float = 60.0,
        program: str = "docker",
    ) -> None:
        check_range(max_seconds=max_seconds, above=0)
        self.folder, self.options, self.max_seconds, self.program = folder, tuple(options), max_seconds, program
        # The containers, the present one last, and the images, newest last.
        self._container: list[str] = []
        self._images: list[str] = []
        self._end = weakref.finalize(self, _end, program, self._container, self._images, os.getpid())
        self._start(image)
        self._docker("exec", self._container[-1], "mkdir", "-p", folder)

    def snapshot(self) -> str:
        """Return a handle to the present contents: the id of an image."""
        image = self._docker("commit", self._container[-1]).stdout.decode().strip()
        self._images.append(image)
        return image

    def restore(self, handle: str) -> None:
        """Replace the container by a new one of the image."""
        self._start(handle)
        self._docker("rm", "-f", self._container[0])
        del self._container[0]

    def delete(self, handle: str) -> None:
        """Remove an image; one that a later image or the container builds on stays until `close`."""
        # Without --no-prune, Docker would also remove the images that it builds on.
        if _call([self.program, "rmi", "--no-prune", handle]).returncode == 0:
            self._images.remove(handle)

    def digest(self) -> bytes:
        """Return a digest of the folder."""
        return self._docker("exec", "-w", self.folder, self._container[-1], "bash", "-c", DIGEST_COMMAND).stdout.strip()

    def run(self, command: str) -> Ran:
        """Run a command by a new ``bash`` in the folder.

        Raises:
            CommandStopped: It took too long.
            SandboxFailed: Docker failed.
        """
        script = timed(command, self.max_seconds)
        done = _call(
            [self.program, "exec", "-w", self.folder, self._container[-1], "sh", "-c", script],
            seconds=self.max_seconds + _DOCKER_SECONDS,
        )
        # The error output of the command is in its output, so this is Docker's.
        if done.stderr:
            raise SandboxFailed(f"docker exec failed: {done.stderr.decode(errors='replace')[:300]}")
        if done.returncode in TIMED_OUT:
            raise CommandStopped(f"it took more than {self.max_seconds:g} s")
        return Ran(done.stdout.decode("utf-8", "replace"), done.returncode)

    def put(self, files: Mapping[str, SandboxFile]) -> None:
        """Write files, by their paths below the folder."""
        self._docker("cp", "-", f"{self._container[-1]}:{self.folder}", given=packed(files))

    def files(self) -> dict[str, SandboxFile]:
        """Return the regular files in the folder, by their paths below it."""
        return unpacked(self._docker("cp", f"{self._container[-1]}:{self.folder}/.", "-").stdout)

    def close(self) -> None:
        """Remove the container and all images."""
        self._end()

    def _start(self, image: str) -> None:
        ran = self._docker("run", "-d", "-w", self.folder, *self.options, image, "sleep", "infinity")
        self._container.append(ran.stdout.decode().strip())

    def _docker(self, *arguments: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        done = _call([self.program, *arguments], given=given)
        if done.returncode:
            raise SandboxFailed(f"docker {arguments[0]} failed: {done.stderr.decode(errors='replace')[:300]}")
        return done


def _call(
    command: list[str], *, given: bytes = b"", seconds: float = _DOCKER_SECONDS
) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(command, input=given, capture_output=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxFailed(f"{command[0]} {command[1]} does not answer: {error}") from error


def _end(program: str, containers: list[str], images: list[str], pid: int) -> None:
    if pid != os.getpid():
        return
    # An image can be removed only after those that build on it.
    calls = [["rm", "-f", *containers], *(["rmi", "--no-prune", image] for image in reversed(images))]
    for call in calls:
        with suppress(SandboxFailed):
            _call([program, *call])
    containers.clear()
    images.clear()
