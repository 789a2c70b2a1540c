"""Tests of the house: the arrows between the rooms, what a room may import, and the size of its files.

Read with `ast`, so that nothing is imported; see the section on rooms and arrows in ARCHITECTURE.md.
"""

import ast
import configparser
import re
import subprocess
import sys
import zipfile
from functools import cache

import pytest

from tests.conftest import ROOT, run_python

# The command line is the top room: it may import every other one, worlds and libraries of terminals included.
CLI = "agents/cli/"
# Each room may import any room to its right.
ROOMS = ("benchmarks", "agents", "wrappers", "tsr_gym_envs", "tsr_gym")
ALIASES = {"tsr_gym.agents": "agents", "tsr_gym.wrappers": "wrappers"}
MAX_FILE, MAX_FUNCTION, MAX_KERNEL = 600, 60, 100
# The one place that adapts foreign classes.
REFLECTS = "tsr_gym/foreign/"
# The files that watch the global generators and copy those of others, because environments of others use them.
# One seeds them, in a process that is theirs alone.
WATCHES_GLOBALS = {"tsr_gym/testing/facts.py", "tsr_gym/foreign/generators.py", "tsr_gym_envs/textarena/games.py"}
# The one file that imitates published code which draws from Python's generator; it makes separate generators.
DRAWS_LIKE_PYTHON = {"tsr_gym_envs/webshop/catalogue/original_random.py"}
LEGACY = re.compile(r"(np|numpy)\.random\.(seed|rand|randn|randint|random|choice|shuffle|permutation|RandomState)$")
# Where the import name is not the distribution's.
DISTRIBUTIONS = {
    "bs4": "beautifulsoup4", "Stemmer": "PyStemmer", "opensearchpy": "opensearch-py", "faiss": "faiss-cpu",
    "sentence_transformers": "sentence-transformers", "jnius": "pyjnius", "jnius_config": "pyjnius",
    "transfer_queue": "transferqueue", "just_bash": "just-bash",
}  # fmt: skip
# Libraries with a separate extra; it may be imported only inside functions, in one file of a room.
OPTIONAL = (
    "vllm", "ray", "pyserini", "jnius", "jnius_config", "spacy", "peft", "trl", "httpx", "opensearchpy", "faiss",
    "sentence_transformers", "pyarrow", "jericho", "textarena", "textworld", "verifiers", "openenv", "verl",
    "transfer_queue", "just_bash", "mcp", "e2b",
)  # fmt: skip
# What the web servers need: imported at the top of the files that are nothing without it.
SERVING = {"starlette": "serve", "uvicorn": "serve"}
# What a tool brings along that loads a file of ours, and where.
BROUGHT = {"pytest": "tsr_gym/testing/pytest_plugin.py"}
SERVERS = {"tsr_gym_envs/serving.py", "tsr_gym_envs/retrieval_qa/server.py", "tsr_gym_envs/webshop/site.py"}


def files_of(room):
    """Return the Python files of a room."""
    return sorted(path for path in (ROOT / room).rglob("*.py") if "__pycache__" not in path.parts)


SOURCES = {
    path.relative_to(ROOT).as_posix(): (room, path.read_text(encoding="utf-8"))
    for room in ROOMS
    for path in files_of(room)
}
TREES = {name: ast.parse(text) for name, (_, text) in SOURCES.items()}


@cache
def imports_of(name):
    """Return (module, line) for everything that a file imports, relative names resolved."""
    found = []
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: write the whole path instead of a relative import"
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def room_of(module):
    """Return the room that a module lies in, None for a library."""
    for alias, room in ALIASES.items():
        if module == alias or module.startswith(f"{alias}."):
            return room
    top = module.partition(".")[0]
    return top if top in ROOMS else None


def third_party(module):
    top = module.partition(".")[0]
    return None if top in sys.stdlib_module_names or top in ROOMS else top


def requirements():
    """Return the names that setup.cfg lists, by extra; those under "" are always installed."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = config["options.extras_require"]

    def names(text):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        own = {re.split(r"[<>=!\[; ]", line, maxsplit=1)[0].lower() for line in lines} - {"tsr-gym"}
        others = [other for line in lines if line.startswith("tsr-gym[") for other in line[8:-1].split(",")]
        return own.union(*(names(extras[other]) for other in others))

    return {"": names(config["options"]["install_requires"]), **{extra: names(extras[extra]) for extra in extras}}


REQUIREMENTS = requirements()


def test_there_is_something_to_check():
    assert {room for room, _ in SOURCES.values()} >= {"agents", "wrappers", "tsr_gym_envs", "tsr_gym"}
    assert REQUIREMENTS[""] >= {"gymnasium", "numpy"}


def wrong_ways(name):
    """Yield the imports that point to the left, to a game from where none is known, or to a bare name."""
    here = SOURCES[name][0]
    for module, line in imports_of(name):
        there = room_of(module)
        if module.partition(".")[0] in ("wrappers", "agents"):
            yield f"{name}:{line}: import tsr_gym.{module}"
        if there is None or there == here:
            continue
        if ROOMS.index(there) < ROOMS.index(here):
            yield f"{name}:{line}: {here} may not import {module}"
        if (here, there) == ("agents", "tsr_gym_envs") and not name.startswith(CLI):
            yield f"{name}:{line}: search and learning know no game"
        if (here, there) == ("wrappers", "tsr_gym_envs") and name != "wrappers/world_scores.py":
            yield f"{name}:{line}: only world_scores.py may import {module}"


def test_the_score_of_a_game_uses_that_games_formulas_alone():
    tree = TREES["wrappers/world_scores.py"]
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    of_games = [node for node in imports if room_of(node.module) == "tsr_gym_envs"]
    game_of = {alias.name: node.module.split(".")[1] for node in of_games for alias in node.names}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in classes:
        games = {game_of[part.id] for part in ast.walk(node) if isinstance(part, ast.Name) and part.id in game_of}
        assert {f"{game.replace('_', '')}score" for game in games} == {node.name.lower()}
    assert len(classes) == len(set(game_of.values()))


def allowed(name):
    """Return the distributions that a file may import."""
    room = SOURCES[name][0]
    if room == "benchmarks":
        return None
    core, cli = REQUIREMENTS[""], REQUIREMENTS["cli"]
    if name.startswith(CLI):
        # Inside functions also what models need; tests/agents/cli/test_core_install.py runs the commands without it.
        return core | cli | REQUIREMENTS["agents"]
    return core | {"tsr_gym_envs": REQUIREMENTS["envs"], "agents": REQUIREMENTS["agents"] - cli}.get(room, set())


def unlisted(name):
    """Yield the libraries that a file imports and setup.cfg does not list for its room."""
    may = allowed(name)
    for module, line in imports_of(name):
        library = third_party(module)
        if library is None or may is None or library in OPTIONAL or BROUGHT.get(library) == name:
            continue
        if library in SERVING:
            if name not in SERVERS:
                yield f"{name}:{line}: only {sorted(SERVERS)} may import {library}"
        elif DISTRIBUTIONS.get(library, library).replace("_", "-").lower() not in may:
            yield f"{name}:{line}: {library} is not among what setup.cfg lists for this room"


@pytest.mark.parametrize("library", OPTIONAL)
def test_an_optional_library_is_imported_in_one_file_of_a_room_and_listed_in_an_extra(library):
    users = {name for name in SOURCES if SOURCES[name][0] != "benchmarks"}
    users = {name for name in users if any(third_party(module) == library for module, _ in imports_of(name))}
    rooms = [SOURCES[name][0] for name in users]
    assert len(rooms) == len({*rooms}), f"{library} is imported in {sorted(users)}: keep it in one file of a room"
    for name in users:
        distribution = DISTRIBUTIONS.get(library, library)
        assert any(distribution in listed for listed in REQUIREMENTS.values()), (
            f"{name} imports {library}, which no extra lists"
        )
        top = [node for node in TREES[name].body if isinstance(node, ast.Import | ast.ImportFrom)]
        at_top = {third_party(alias.name) for node in top if isinstance(node, ast.Import) for alias in node.names}
        at_top |= {third_party(node.module) for node in top if isinstance(node, ast.ImportFrom)}
        assert library not in at_top, f"{name}: import {library} where it is used, so that it stays optional"


@cache
def calls_in(name):
    calls = [node for node in ast.walk(TREES[name]) if isinstance(node, ast.Call)]
    return [(ast.unparse(node.func), node.lineno) for node in calls]


def calls_of_others(name):
    """Yield the calls that look an attribute up, print, or draw from global generators."""
    if not name.startswith((CLI, "benchmarks/")):
        yield from (f"{name}:{line}: print()" for call, line in calls_in(name) if call == "print")
    if SOURCES[name][0] == "benchmarks":
        return
    if not name.startswith(REFLECTS):
        looked_up = "getattr", "hasattr", "setattr", "delattr"
        yield from (f"{name}:{line}: {call}()" for call, line in calls_in(name) if call in looked_up)
    if name in WATCHES_GLOBALS | DRAWS_LIKE_PYTHON:
        return
    for module, line in imports_of(name):
        if module.partition(".")[0] == "random":
            yield f"{name}:{line}: draw from a numpy Generator"
    inside_hash = [
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.FunctionDef) and node.name == "__hash__"
    ]
    for call, line in calls_in(name):
        if LEGACY.match(call):
            yield f"{name}:{line}: {call} draws from numpy's global generator"
        # The checks compare hashes within one process, where they are stable.
        stable = name.startswith("tsr_gym/testing/") or any(line in lines for lines in inside_hash)
        if call == "hash" and not stable:
            yield f"{name}:{line}: hash() differs between processes"


def too_long(name):
    """Yield what is too long to read, and errors that a bare except swallows."""
    lines = SOURCES[name][1].count("\n")
    if lines > MAX_FILE:
        yield f"{name} has {lines} lines: split it"
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kernel = any("njit" in ast.unparse(decorator) for decorator in node.decorator_list)
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > (MAX_KERNEL if kernel else MAX_FUNCTION):
                yield f"{name}:{node.lineno}: {node.name} has {length} lines"
        elif isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{name}:{node.lineno}: a bare except"


@pytest.mark.parametrize("faults", [wrong_ways, unlisted, calls_of_others, too_long], ids=lambda rule: rule.__name__)
def test_no_file_breaks_a_rule_of_the_house(faults):
    assert [fault for name in SOURCES for fault in faults(name)] == []


@pytest.mark.parametrize("room", ["wrappers", "agents"])
def test_a_room_refuses_to_be_imported_under_its_bare_name(room):
    done = run_python(f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {room}", check=False)
    assert done.returncode == 1
    assert f"import this package as tsr_gym.{room}" in done.stderr


def test_no_symlink_is_committed():
    listed = subprocess.run(["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=False)
    # Mode 120000 is a symlink. An archive of the repository has no git, and no modes to check.
    assert [line for line in listed.stdout.splitlines() if line.startswith("120000")] == []


HEAVY = ("torch", "transformers", "numba", "bs4", "jinja2", "rapidfuzz", "tyro", "rich", "matplotlib", "tensorboard")


def test_importing_the_package_and_making_an_environment_stays_cheap():
    code = (
        "import sys, tsr_gym, tsr_gym.wrappers, tsr_gym.testing, gymnasium\n"
        "gymnasium.make('tsr/FrozenLake-v0').reset(seed=1)\n"
        f"print(sorted(set(sys.modules) & {set(HEAVY)!r}))"
    )
    assert run_python("import sys, tsr_gym; " + f"print(sorted(set(sys.modules) & {set(HEAVY)!r}))").strip() == "[]"
    assert run_python(code).strip() == "[]"


def test_search_and_strategies_work_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import tsr_gym.agents, tsr_gym.agents.strategies, tsr_gym.agents.episodes.search\n"
        "print('torch-free')"
    )
    assert run_python(code).strip() == "torch-free"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy of what is in the tree, so that the checkout stays clean."""
    import shutil

    copy = tmp_path_factory.mktemp("checkout") / "tree"
    copy.mkdir()
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, copy / name)
    (copy / "README.md").touch()
    for room in ROOMS[1:]:
        shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__", "*.nb?"))
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(copy)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-2000:]
    return next(target.glob("*.whl"))


def test_the_wheel_holds_what_the_tree_holds_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = set()
    for room in ROOMS[1:]:
        prefix = f"tsr_gym/{room}" if room in ("agents", "wrappers") else room
        for path in (ROOT / room).rglob("*"):
            rest = path.relative_to(ROOT / room)
            if path.is_file() and "__pycache__" not in rest.parts:
                wanted.add(f"{prefix}/{rest.as_posix()}")
    # Data files that are missing in the wheel belong into package_data of setup.cfg.
    assert inside == wanted


def test_the_wheel_claims_no_other_top_level_names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tsr_gym", "tsr_gym_envs"}


def test_the_wheel_works_without_the_checkout(wheel, tmp_path):
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r})\n"
        "import tsr_gym, tsr_gym.wrappers, gymnasium\n"
        "assert 'whl' in tsr_gym.__file__ and 'whl' in tsr_gym.wrappers.__file__\n"
        "env = tsr_gym.wrappers.AnswerFormat(gymnasium.make('tsr/Sokoban-v0'))\n"
        "print(env.reset(seed=1)[0].count('P'))"
    )
    assert run_python(code, cwd=tmp_path).strip() == "1"
