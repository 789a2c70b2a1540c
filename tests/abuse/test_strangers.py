"""Objects, rows and folders of others: state without an order, nonsense in columns, copies, and modules by name."""

import json
import sys
from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np

from tests.abuse.attacks import attacked, counted
from tests.agents.episodes.test_start_states import bank_of, small_tree
from tests.tsr_gym.foreign.test_addresses import ORDERED, UNORDERED
from tsr_gym import ConfigError, InvalidTree, SnapshotError
from tsr_gym.agents.bridges.audit import audit_file
from tsr_gym.agents.episodes.start_states import StartStateBank
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
