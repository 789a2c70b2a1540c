"""A program that stands in for docker: containers and images are folders below the current one.

It has what `DockerBackend` calls. An image that another one or a container builds on cannot be removed, as in Docker.
"""

import os
import subprocess
import sys
from pathlib import Path

HOME = Path(os.environ["STAND_IN_DOCKER"])


def parents():
    return {path.read_text() for path in HOME.glob("*/parent")}


def new(prefix, source, parent):
    number = len(list(HOME.iterdir())) + int(HOME.joinpath("removed").read_text() or 0)
    place = HOME / f"{prefix}{number}"
    place.mkdir()
    (place / "parent").write_text(parent)
    files = HOME / source / "files"
    subprocess.run(["cp", "-a", files, place], check=True) if files.is_dir() else (place / "files").mkdir()
    return place.name


def remove(name):
    subprocess.run(["rm", "-r", HOME / name], check=True)
    HOME.joinpath("removed").write_text(str(int(HOME.joinpath("removed").read_text() or 0) + 1))


def inside(target):
    container, _, path = target.partition(":")
    return HOME / container / "files" / path.lstrip("/")


def main(verb, *given):
    if verb == "run":
        assert given[:3] == ("-d", "-w", "/work"), given
        assert given[-2:] == ("sleep", "infinity"), given
        sys.stdout.write(new("container", given[-3], given[-3]))
    elif verb == "commit":
        sys.stdout.write(new("sha256:", given[0], (HOME / given[0] / "parent").read_text()))
    elif verb == "exec":
        folder, rest = ("/", given) if given[0] != "-w" else (given[1], given[2:])
        command = [part.replace("/work", str(inside(f"{rest[0]}:/work"))) for part in rest[1:]]
        return subprocess.run(command, cwd=inside(f"{rest[0]}:{folder}"), check=False).returncode
    elif verb == "cp" and given[0] == "-":
        subprocess.run(["tar", "-xpf", "-", "-C", inside(given[1])], check=True)
    elif verb == "cp":
        subprocess.run(["tar", "-cf", "-", "-C", inside(given[0]), "."], check=True)
    elif verb == "rm":
        for name in given[1:]:
            remove(name)
    elif given[1] in parents():
        sys.stderr.write("conflict: image has dependent child images")
        return 1
    else:
        remove(given[1])
    return 0


if __name__ == "__main__":
    HOME.mkdir(exist_ok=True)
    HOME.joinpath("removed").touch()
    sys.exit(main(*sys.argv[1:]))
