"""Objects, rows and folders of others: states, nonsense in columns, copies, names of trees, links and modules."""

import json
import shutil
import sys
from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np

from tests.abuse.attacks import attacked, counted
from tests.agents.episodes.test_start_states import bank_of, small_tree
from tests.agents.reports.view.trees import node
from tests.tsr_gym.foreign.test_addresses import ORDERED, UNORDERED
from tests.tsr_gym.test_state_env import IMMUTABLE, MUTABLE, Fixed, Holds, Plank, read_only
from tsr_gym import ConfigError, InvalidTree, SnapshotError, Tree, snapshot
from tsr_gym.agents.bridges.audit import audit_file
from tsr_gym.agents.episodes.start_states import StartStateBank
from tsr_gym.agents.reports.view.server import export_page
from tsr_gym.agents.reports.view.site import TreeFile, find_sources
from tsr_gym.agents.runs.progress import checkpoints
from tsr_gym.foreign.addresses import unordered_in
from tsr_gym.optional import check_import, importing_only

NONSENSE = (None, True, -1, 2**70, 10**400, 1e308, float("nan"), float("-inf"), "", "\ud800", [], [[1]], {}, [None])

SHELLS = (lambda value: [value], lambda value: {"k": value}, lambda value: (1, value), lambda value: deque([value]))
SHELLS += (lambda value: SimpleNamespace(inner=value), lambda value: np.array([value, None], dtype=object))


def _pick(rng, values):
    return list(values)[rng.integers(len(values))]


def _states(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        bad = bool(rng.integers(2))
        name = value = _pick(rng, UNORDERED if bad else ORDERED)
        value = (UNORDERED if bad else ORDERED)[name]
        for _ in range(rng.integers(5)):
            value = _pick(rng, SHELLS)(value)

        def attack(value=value, bad=bad):
            if reason := unordered_in(SimpleNamespace(unwrapped=None, place=value)):
                raise SnapshotError(reason)
            return not bad

        yield attacked(f"{name} in {value!r:.200}", attack, SnapshotError, lambda bad=bad: bad)


def test_sets_without_an_order_are_refused_however_deep_and_nothing_else(hold):
    counts = hold("sets of objects", lambda count, seed: counted(_states(count, seed)), 100)
    assert counts.refused > 0 < counts.right


FIXED_SHELLS = (Fixed, Plank, lambda value: (1, value), lambda value: read_only([value, None]))


def _immutable_states(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        bad, late = bool(rng.integers(2)), int(rng.integers(4))
        value = MUTABLE[_pick(rng, MUTABLE)][0] if bad else _pick(rng, IMMUTABLE)
        for _ in range(rng.integers(5)):
            value = _pick(rng, FIXED_SHELLS)(value)
        env = Holds(value, late)
        env.reset(seed=0)
        for turn in range(late):
            env.step(turn)
        attack = lambda env=env, bad=bad: snapshot(env) is not None and not bad  # noqa: E731
        yield attacked(f"{value!r:.200} from turn {late}", attack, SnapshotError, lambda bad=bad: bad)


def test_states_that_can_be_changed_are_refused_however_deep_and_nothing_else(hold):
    counts = hold("states", lambda count, seed: counted(_immutable_states(count, seed)), 100)
    assert counts.refused > 0 < counts.right


def _rows(count, seed):
    """Put nonsense into a column of a row for audits, or into a field of a start state."""
    rng = np.random.default_rng(seed)
    row = {"input_ids": [1, 2, 3], "mask": [0, 1, 1], "logprobs": [0, -0.5, -0.5], "messages": [{"role": "user"}]}
    with TemporaryDirectory() as home:
        rows = Path(home) / "rows.jsonl"
        bank_of(small_tree()).save(rows)
        lines = rows.read_text().splitlines()
        assert len(lines) > 1
        for number in range(count):
            is_row, wrong = number % 2, _pick(rng, NONSENSE)
            fields = row if is_row else json.loads(lines[1])
            name = _pick(rng, fields)
            listed = is_row and rng.integers(2)
            fields = fields | {name: [*fields[name][:-1], wrong] if listed else wrong}
            text = json.dumps(fields)
            rows.write_text(text if is_row else "\n".join([lines[0], text, *lines[2:]]))

            def attack(read=audit_file if is_row else StartStateBank.load):
                read(rows)
                return True

            yield attacked(text[:500], attack, ConfigError if is_row else InvalidTree)


def test_nonsense_in_rows_and_start_states_is_refused_or_reported(hold):
    counts = hold("rows of others", lambda count, seed: counted(_rows(count, seed)), 60)
    assert counts.refused > 0


def _copies(count, seed):
    rng = np.random.default_rng(seed)
    marks = ("", "0", "_backup", " (copy)", ".partial", "~", "-1", "x", "\u0661", "1e3")
    for _ in range(count):
        with TemporaryDirectory() as home:
            numbers = sorted({int(10 ** rng.uniform(0, 8)) for _ in range(3)})
            sound = [f"{number:06d}" for number in numbers]
            names = {f"{_pick(rng, sound)}{_pick(rng, marks[2:])}" for _ in range(3)} | {f"0{name}" for name in sound}
            for name in {*sound, *names}:
                (Path(home) / "checkpoints" / name).mkdir(parents=True)
            listed = [path.name for path in checkpoints(Path(home))]
            yield attacked(f"{sorted(names)} among {sound}", lambda a=listed, b=sound: a == b, ConfigError)


def test_copies_of_checkpoints_are_none_and_numbers_are_in_their_order(hold):
    hold("copies of checkpoints", lambda count, seed: counted(_copies(count, seed)), 30)


def _names_of_trees(count, seed):
    """View folders and files of trees, few names for all of them, in runs and beside them."""
    rng = np.random.default_rng(seed)
    names = ("a", "b", "a-2", "trees", "a.jsonl")
    for _ in range(count):
        with TemporaryDirectory() as home:
            paths, wanted = [], []
            for number in range(rng.integers(1, 5)):
                folder = Path(home) / str(number) / _pick(rng, names)
                shape = _pick(rng, ("run", "folder", "file"))
                trees = folder / "trees" if shape == "run" else folder
                ends = [f"{_pick(rng, names)}{_pick(rng, ('.jsonl', '.jsonl.gz'))}" for _ in range(rng.integers(1, 4))]
                for end in ends:
                    (trees / end).parent.mkdir(parents=True, exist_ok=True)
                    small_tree().save(trees / end)
                if shape == "run":
                    (folder / "metrics.jsonl").touch()
                run = folder if shape == "run" else None
                paths.append(trees / ends[0] if shape == "file" else folder)
                files = {trees / end for end in (ends[:1] if shape == "file" else ends)}
                wanted += [TreeFile(file, None if shape == "file" else folder, run) for file in files]

            def attack(paths=paths, wanted=wanted):
                return sorted(find_sources(paths).trees.values(), key=str) == sorted(wanted, key=str)

            yield attacked(str([str(file.path.relative_to(home)) for file in wanted]), attack, ConfigError)


def test_every_tree_at_the_paths_of_a_view_has_a_name_and_its_own_run(hold):
    counts = hold("names of trees", lambda count, seed: counted(_names_of_trees(count, seed)), 30)
    assert counts.right == counts.tried


SECRET = "words of a file outside"


def _secret_run(folder):
    """Write a run with the secret wherever a page shows the text of a run."""
    model = folder / "checkpoints" / "000001" / "model"
    model.mkdir(parents=True)
    (folder / "trees" / "000001").mkdir(parents=True)
    (folder / "run.toml").write_text(f'env = "{SECRET}"\nmodel = "{SECRET}"\n')
    for name in ("metrics", "evaluations"):
        (folder / f"{name}.jsonl").write_text(json.dumps({"step": 1, "groups": 1, "dropped": {SECRET: 1}}) + "\n")
    tree = Tree(seed=1, about={"env": SECRET})
    tree.add(node(None, 0, shown=SECRET))
    for name in ("x.jsonl", "000001/00-00.jsonl.gz"):
        tree.save(folder / "trees" / name)
    (folder / "trees" / "text.jsonl").write_text(SECRET)
    (model / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": {"type": "WordLevel", SECRET: 1}}))


def _links(count, seed):
    """Replace files and folders of a run by links that lead, at once or over others, to those of another run."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        with TemporaryDirectory() as name:
            home, outside = Path(name) / "received", Path(name) / "outside"
            _secret_run(outside)
            places = sorted(str(path.relative_to(outside)) for path in outside.rglob("*"))
            run = home / "run"
            shutil.copytree(outside, run)
            for file in run.rglob("*"):
                if file.is_file() and not file.name.endswith(".gz"):
                    file.write_text(file.read_text().replace(SECRET, "words of the run"))
            small_tree().save(run / "trees" / "000001" / "00-00.jsonl.gz")
            linked = {_pick(rng, places) for _ in range(rng.integers(1, 4))}
            for place in sorted(linked):
                _link(rng, run / place, outside / (place if rng.integers(4) else _pick(rng, places)), home)
            page, shown = Path(name) / f"{number}.html", run if rng.integers(2) else home

            def attack(shown=shown, page=page):
                export_page([shown], page)
                return SECRET not in page.read_text(encoding="utf-8")

            yield attacked(f"links at {sorted(linked)}", attack, (ConfigError, OSError))


def _link(rng, place, target, home):
    if not place.parent.exists() or place.parent.resolve() != place.parent:
        return
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    for hop in range(rng.integers(3)):
        between = home / f"{place.name}-{hop}"
        if not between.is_symlink():
            between.symlink_to(target)
            target = between
    relative = Path(*[".."] * len(place.parent.parts[1:]), *target.parts[1:])
    place.symlink_to(relative if rng.integers(2) else target)


def test_no_link_of_a_received_run_brings_words_of_other_files_into_a_page(hold):
    hold("links of runs", lambda count, seed: counted(_links(count, seed)), 30)


def _modules(count, seed):
    rng = np.random.default_rng(seed)
    parts = (
        "os",
        "tsr_gym",
        "tsr_gymx",
        "tsr_gym_envs",
        "mine",
        "gymnasium",
        "",
        ".",
        "..",
        "\ud800",
        "a b",
        "subprocess",
    )
    for _ in range(count):
        name = ".".join(_pick(rng, parts) for _ in range(rng.integers(1, 4)))
        ours = name.partition(".")[0] in ("tsr_gym", "tsr_gym_envs", "gymnasium", "mine")

        def attack(name=name, ours=ours):
            with importing_only(("mine",), "give a flag"):
                check_import(name)
            return ours

        yield attacked(repr(name), attack, ConfigError, lambda ours=ours: not ours and "mine" not in sys.modules)


def test_only_modules_that_were_given_may_be_imported(hold):
    counts = hold("modules by name", lambda count, seed: counted(_modules(count, seed)), 100)
    assert counts.refused > 0 < counts.right
