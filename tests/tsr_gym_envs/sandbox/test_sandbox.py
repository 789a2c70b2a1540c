"""Sandboxes: going back in a real folder, limits, kept and repeated states, containers and services by stand-ins."""

import copy
import os
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tsr_gym
from tests.conftest import ROOT, deep
from tsr_gym import Candidate, ConfigError, SnapshotError
from tsr_gym.errors import ReplayDiverged
from tsr_gym.testing import check_snapshot, check_text_env
from tsr_gym.wrappers import AnswerFormat, TreeSearchWrapper
from tsr_gym_envs.sandbox.backend import CommandStopped, SandboxFailed, SandboxFile
from tsr_gym_envs.sandbox.branches import SandboxTask
from tsr_gym_envs.sandbox.directory import DirectoryBackend
from tsr_gym_envs.sandbox.docker import DockerBackend
from tsr_gym_envs.sandbox.e2b import E2BBackend
from tsr_gym_envs.sandbox.env import SandboxEnv

FILES = (("a.txt", SandboxFile(b"1\n2\n3\n")), ("d/run.sh", SandboxFile(b"echo hi\n", 0o755)))
COMMANDS = (
    "ls -la", "wc -l < a.txt > n", "rm -f a.txt", "echo 4 >> a.txt", "mkdir -p e/f; echo x > e/f/g", "mv d dd",
    "printf 9 | dd of=a.txt bs=1 seek=2 conv=notrunc status=none", "chmod 600 a.txt", "ln -sf a.txt link", "rm -r e",
    "touch a.txt", "chmod 000 d", "chmod 755 d", "mv a.txt b.txt", "mv b.txt a.txt", "cp -r d copy", "truncate -s 1 n",
    "rm link; mkdir link", "rmdir link; echo z > link", "chmod 500 .", "chmod 755 .",
    "echo 'é' > \"$(printf 'n\\xff')\"", "find d -newer a.txt > newer", "sed -i s/2/5/ a.txt", "touch -h link",
    "chmod u+s a.txt",
)  # fmt: skip
COUNT = SandboxTask(
    text="Put the number of lines of a.txt into n.",
    checker='[ "$(cat n 2>/dev/null)" = 3 ] && echo x >> a.txt',
    files=FILES,
    setup=("echo old > old",),
)


def has_backup(files):
    """Return half of the progress for each of a copy and its right mode."""
    copied = files.get("b.txt")
    return 0.0 if copied is None or copied.content != b"1\n2\n3\n" else 0.5 + 0.5 * (copied.mode == 0o600)


BACKUP = SandboxTask(
    text="Copy a.txt to b.txt, readable for you alone.", checker=has_backup, files=FILES, commands=COMMANDS[:8]
)


def make(**settings):
    return SandboxEnv(DirectoryBackend, (COUNT, BACKUP), **settings)


def picture(root):
    """Return everything below a folder, by the shell's own tools and not by the backend's."""
    rows = []
    for parent, folders, files in os.walk(root):
        for name in [".", *folders, *files]:
            path = Path(parent, name)
            about = path.lstat()
            content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            rows.append((str(path), about.st_mode, about.st_mtime_ns, content))
    return sorted(rows)


def test_a_hundred_random_commands_and_ways_back_leave_no_difference():
    backend, rng = DirectoryBackend(), np.random.default_rng(0)
    backend.put(dict(FILES))
    kept, digests = {backend.snapshot(): picture(backend.root)}, {}
    seen = set()
    for _ in range(100):
        start = list(kept)[int(rng.integers(len(kept)))]
        backend.restore(start)
        assert picture(backend.root) == kept[start]
        digest = backend.digest()
        assert digests.setdefault(start, digest) == digest
        command = COMMANDS[int(rng.integers(len(COMMANDS)))]
        first = backend.run(command), backend.digest(), picture(backend.root)
        backend.restore(start)
        assert (backend.run(command), backend.digest(), picture(backend.root)) == first
        kept[backend.snapshot()] = first[2]
        seen.add((first[1], tuple((path, mode, content) for path, mode, _, content in first[2])))
    # Equal digests where all but times are equal, different ones elsewhere.
    assert len(seen) == len({digest for digest, _ in seen}) == len({rows for _, rows in seen}) > 20
    handle = next(iter(kept))
    backend.delete(handle)
    with pytest.raises(SandboxFailed, match="there is no snapshot"):
        backend.restore(handle)
    backend.close()
    assert not backend.root.exists()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("mkfifo p", "'p', which is no file, folder or symbolic link"),
        ("ln a.txt hard", "hard link"),
        ("head -c 300000 /dev/zero > big; cp big c; cp big d/e; cp big d/f", "more than 1000000 bytes in files"),
        ("head -c 1000001 /dev/zero; head -c 9 /dev/zero", "printed more than"),
        ("sleep 9", "more than 0.5 s"),
        ("cd ..; rm -r work; ln -s /usr work", "removed the folder of work"),
        ("cd ..; rm -r work; echo x > work", "removed the folder of work"),
    ],
)
def test_a_command_that_reaches_a_limit_means_nothing_and_changes_nothing(command, reason):
    env = SandboxEnv(partial(DirectoryBackend, max_seconds=0.5, max_bytes=1_000_000), BACKUP)
    env.reset(seed=0)
    env.step("echo x > x; sleep 60 &")
    before = env.state
    info = env.step(command)[4]
    assert (info["action_is_valid"], info["action_is_effective"]) == (False, False)
    assert reason in info["invalid_reason"]
    assert env.state == before
    assert env.step("cat x; jobs; ls")[0].endswith("\nx\na.txt\nd\nx")
    env.close()


def test_a_background_process_ends_with_its_command_and_outputs_are_cut():
    env = make(max_shown=20)
    env.reset(seed=0, options={"task": 1})
    env.step("(sleep 0.2; echo late > late) & echo $! > pid")
    env.step("sleep 0.4")
    assert env.step("ls late; exit 3")[0].endswith("(exit status 3)")
    assert env.step("seq 100")[0].endswith("$ seq 100\n1\n2\n3\n4\n5\n\n[...]\n98\n99\n100")
    env.close()


def test_a_command_has_a_fixed_environment_and_its_errors_are_those_of_bash():
    backend = DirectoryBackend()
    assert backend.run("env | cut -d= -f1 | sort | xargs").output == "HOME LANG PATH PWD SHLVL TMPDIR TZ _\n"
    assert backend.run("umask; ulimit -c -f | grep -o '[0-9]*$'; echo (").output.startswith("bash: -c: line 1: syntax")
    assert backend.run("umask; ulimit -c; ulimit -f; pwd").output.split() == ["0022", "0", "62501", str(backend.root)]
    backend.close()


@pytest.mark.parametrize("text", ["", " \n", "a\0b", "\ud800", "x" * 10_001])
def test_a_text_without_a_command_is_invalid(text):
    env = make()
    env.reset(seed=0)
    assert env.step(text)[4]["action_is_valid"] is False
    env.close()


def make_small():
    return SandboxEnv(DirectoryBackend, BACKUP, max_turns=3)


@pytest.mark.parametrize("other_processes", [False, deep(True)])
def test_the_sandbox_keeps_the_contracts(other_processes):
    env = make_small()
    check_text_env(env, seeds=(0,), steps=3, junk=("", "a\0b"))
    check_snapshot(env, factory=make_small, seeds=(1,), other_processes=other_processes)
    env.close()


def test_a_tree_through_wrappers_goes_back_in_the_sandbox_and_checkers_leave_no_trace():
    env = TreeSearchWrapper(AnswerFormat(make(), think=False))
    env.reset(seed=0, options={"task": 0})
    turns = ("rm a.txt", "cat a.txt old", "wc -l < a.txt > n", "echo 9 >> a.txt")
    nodes = env.expand(0, [Candidate(f"<answer>{turn}</answer>") for turn in turns])
    assert [env.tree.nodes[node].reward for node in nodes] == [0, 0, 1, 0]
    assert env.tree.nodes[nodes[1]].observation.endswith("1\n2\n3\nold")
    (after,) = env.expand(nodes[3], [Candidate("<answer>tail -n 2 a.txt; ls</answer>")])
    assert env.tree.nodes[after].observation.endswith("3\n9\na.txt\nd\nold")
    env.goto(nodes[1])
    assert env.step("<answer>wc -l a.txt; wc -l < a.txt > n</answer>")[1:3] == (1.0, True)
    twin = tsr_gym.clone(env.unwrapped)
    env.reset(seed=0, options={"task": 1})
    assert [
        round(env.step(f"<answer>{turn}</answer>")[4]["progress"], 1) for turn in ("cp a.txt b.txt", "chmod 600 b.txt")
    ] == [*(0.5, 1.0)]
    assert twin.state.place.task == 0
    env.close()


def test_states_are_repeated_where_they_are_not_kept_and_refused_where_they_differ():
    env = make(max_snapshots=2)
    env.reset(seed=0, options={"task": 1})
    snaps = [env.snapshot()]
    for turn in range(5):
        env.step(f"echo {turn} >> log")
        snaps.append(env.snapshot())
    assert env.branches.num_kept == 3
    for number in (5, 1, 3, 0):
        env.restore(snaps[number])
        assert env.step("ls -l --full-time; cat log")[0].split("\n")[-1][-1:] == (str(number - 1) if number else ")")
    # Another process, and a copy of the environment, open a sandbox; here a pickle does.
    other = pickle.loads(pickle.dumps(env))
    assert copy.deepcopy(env).branches is env.branches
    assert other.branches is not env.branches
    env.restore(snaps[4])
    other.restore(snaps[4])
    assert env.step("ls -l; cat log") == other.step("ls -l; cat log")
    other.step("date +%N > now")
    restless = other.snapshot()
    assert other.step("cat now")[4]["action_is_valid"]
    other.close()
    other.restore(restless)
    with pytest.raises(ReplayDiverged, match="date"):
        other.step("cat now")
    damaged = restless.layers[-1].state.episode.state._replace(output=3)
    state = restless.layers[-1].state
    with pytest.raises(SnapshotError, match="damaged"):
        env.set_env_state(state._replace(episode=state.episode._replace(state=damaged)))
    folders = [env.branches._backend.root, other.branches._opened().root]
    env.close(), other.close()
    assert not any(folder.exists() for folder in folders)
    assert env.branches.num_kept == 0


def test_mistakes_of_the_program_are_errors(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        DirectoryBackend(tmp_path)
    with pytest.raises(ConfigError, match="one or more tasks"):
        SandboxEnv(DirectoryBackend, ())
    env = SandboxEnv(DirectoryBackend, SandboxTask(text="t", checker="true", setup=("echo no; false",)))
    with pytest.raises(ConfigError, match=r"the setup 'echo no; false' of task 0 failed: no"):
        env.reset(seed=0)
    for options in ({"task": 2}, {"level": 1}):
        with pytest.raises(ConfigError):
            make().reset(options=options)
    with pytest.raises(ConfigError, match="below the folder"):
        DirectoryBackend().put({"../x": SandboxFile(b"")})
    with pytest.raises(SandboxFailed, match="does not answer"):
        DockerBackend("image", program=str(tmp_path / "none"))


def stub_of_e2b(home):
    """Return a class with the methods of E2B's client that the backend calls, over folders."""
    names = iter(range(1000))

    class Exit(Exception):
        pass

    class Sandbox:
        def __init__(self, source):
            self.root = home / f"sandbox{next(names)}"
            (self.root / "home/user").mkdir(parents=True) if source is None else subprocess.run(
                ["cp", "-a", home / source, self.root]
            )
            self.commands = SimpleNamespace(run=self.run)
            self.files = SimpleNamespace(write=self.write)

        @classmethod
        def create(cls, template=None, timeout=None):
            return cls(template)

        @classmethod
        def delete_snapshot(cls, snapshot_id):
            return subprocess.run(["rm", "-r", home / snapshot_id]).returncode == 0

        def create_snapshot(self):
            name = f"snapshot{next(names)}"
            subprocess.run(["cp", "-a", self.root, home / name])
            return SimpleNamespace(snapshot_id=name)

        def run(self, cmd, cwd, timeout):
            text = cmd.replace("/home/user", f"{self.root}/home/user")
            done = subprocess.run(["bash", "-c", text], cwd=f"{self.root}{cwd}", capture_output=True, text=True)
            if done.returncode:
                raise Exit(done.returncode)
            return SimpleNamespace(stdout=done.stdout, stderr=done.stderr, exit_code=0)

        def write(self, path, data):
            place = self.root / path[1:]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)

        def kill(self):
            subprocess.run(["rm", "-r", self.root])

    return Sandbox


@pytest.fixture
def makers(tmp_path, monkeypatch):
    """Return makers of the backends that stand-ins serve, by name, and the folder of the stand-ins."""
    program = tmp_path / "docker"
    script = ROOT / "tests/tsr_gym_envs/sandbox/stand_in_docker.py"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {script} "$@"\n')
    program.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("STAND_IN_DOCKER", str(home))
    docker = partial(DockerBackend, "image", program=str(program), max_seconds=0.7)
    return {"docker": docker, "e2b": partial(E2BBackend, client=stub_of_e2b(home), max_seconds=0.7)}, home


@pytest.mark.parametrize("name", ["docker", "e2b"])
def test_containers_and_services_answer_as_the_folder_does(name, makers):
    by_name, home = makers
    env, plain = SandboxEnv(by_name[name], (COUNT, BACKUP), max_snapshots=3), make()
    for each in (env, plain):
        each.reset(seed=0, options={"task": 1})
    snap = plain.snapshot(), env.snapshot()
    for command in ("cp a.txt b.txt; ls", "exit 7", "sleep 9", "rm a.txt", "chmod 600 b.txt"):
        if command == "sleep 9":
            assert "took more" in env.step(command)[4]["invalid_reason"]
            plain.step("")
            continue
        assert env.step(command) == plain.step(command)
    assert env.is_success(env.state)
    plain.restore(snap[0]), env.restore(snap[1])
    assert env.step("cat a.txt; ls") == plain.step("cat a.txt; ls")
    assert env.branches.num_kept == 4
    env.reset(seed=0, options={"task": 0})
    assert env.step("wc -l < a.txt > n")[1] == 1.0
    env.close(), plain.close()
    assert [path.name for path in home.iterdir() if path.name != "removed"] == []


def test_a_failure_of_the_sandbox_is_an_error_and_leaves_the_episode(makers):
    by_name, _ = makers
    env = SandboxEnv(by_name["e2b"], BACKUP)
    env.reset(seed=0)
    before = env.episode
    client = env.branches._backend._sandbox[0]
    client.commands.run = lambda *given, **settings: 1 / 0
    with pytest.raises(SandboxFailed, match=r"E2B's commands.run failed: ZeroDivisionError"):
        env.step("ls")
    assert env.episode == before
    env.branches._at = None
    assert env.step("ls")[4]["action_is_valid"]
    env.close()
    with pytest.raises(CommandStopped):
        by_name["docker"]().run("exit 124")
