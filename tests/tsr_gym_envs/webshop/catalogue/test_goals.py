"""Goals: the original's order, texts, weights and random numbers, their repairs, and their arrays."""

import copy
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from bisect import bisect
from collections import Counter
from dataclasses import replace
from itertools import accumulate, islice
from itertools import product as combinations

import numpy as np
import pytest

from tests.conftest import ROOT, run_python
from tests.tsr_gym_envs.webshop.shops import ANNOTATION, ENTRY, item, write_files
from tsr_gym import ConfigError, InvalidCatalogue
from tsr_gym_envs.settings import in_split
from tsr_gym_envs.webshop.catalogue.goals import drawn_prices, goal_table, make_goals
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.catalogue.original_random import draw_name, generator_of
from tsr_gym_envs.webshop.repairs import Repairs, repairs_of

ORIGINAL, FIXED = repairs_of("original"), repairs_of("fixed")


@pytest.fixture(scope="module")
def original(real_catalogue):
    return make_goals(real_catalogue, ORIGINAL, seed=0)


@pytest.fixture(scope="module")
def fixed(real_catalogue):
    return make_goals(real_catalogue, FIXED)


@pytest.fixture
def small(tmp_path):
    """Import a few products."""

    def load(*items, entries=None, annotations=None):
        files = write_files(tmp_path / "in", list(items), entries, annotations)
        return import_catalogue(files, tmp_path / "out", with_nouns=False)

    return load


def read(shared, name):
    return json.loads((shared / "golden" / "webshop" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("file", "human", "count"), [("goals_synthetic_seed0", False, 6910), ("goals_human_seed0", True, 13)]
)
def test_the_originals_goals_are_drawn_bit_for_bit(real_catalogue, golden, file, human, count):
    goals = make_goals(real_catalogue, ORIGINAL, human=human, seed=0)
    assert len(goals) == count
    rows = golden(f"webshop/{file}.jsonl")
    for row in rows:
        number = row.pop("index")
        assert (goals[number], list(goals[number])) == (row, list(row))
        assert goals[number - len(goals)] == row
        assert goals.row(number) == goals.goal(number).row == real_catalogue.row_of(row["asin"])
    assert len(rows) == min(count, 1500)


@pytest.mark.parametrize(("file", "human"), [("synthetic", False), ("human", True)])
def test_the_originals_prices_are_drawn_bit_for_bit(real_catalogue, shared, file, human):
    goals = make_goals(real_catalogue, ORIGINAL, human=human, seed=0)
    prices = read(shared, f"product_prices_{file}_seed0.json")
    assert len(prices) == 1000
    assert {asin: goals.price(real_catalogue.row_of(asin)) for asin in prices} == prices


def test_random_sessions_follow_the_golden_sequence(original, shared):
    # The first one was drawn inside of the constructor.
    generator = generator_of(original.dice)
    for name, goal in read(shared, "rng_reset_sequence.json")["sessions"][1:]:
        assert draw_name(generator) == name
        assert original.draw(generator.random()) == goal


def test_some_of_the_goals_are_those_that_the_original_keeps(real_catalogue, original, shared):
    rows = read(shared, "limit_goals_25_seed0.json")
    limited = make_goals(real_catalogue, ORIGINAL, limit=25)
    assert len(limited) == len(rows) == 25
    for goal, row in zip(limited, rows, strict=True):
        assert (goal["asin"], goal["instruction_text"]) == (row["asin"], row["instruction_text"])
        assert goal == original[row["idx"]]
    assert make_goals(real_catalogue, ORIGINAL, limit=10_000)[:3] == original[:3]


def test_the_order_is_that_of_an_independent_reconstruction(original, shared):
    folder = shared / "data" / "webshop"
    items = json.loads((folder / "items_shuffle_1000.json").read_text())
    entries = json.loads((folder / "items_ins_v2_1000.json").read_text())
    expected = []
    for record in items:
        if "instruction" in entries[record["asin"]]:
            groups = {
                name.lower(): [value["value"].strip().replace("/", " | ").lower() for value in values]
                for name, values in (record["customization_options"] or {}).items()
                if values is not None
            }
            names = sorted(groups)
            values = combinations(*(groups[name] for name in names))
            expected += [(record["asin"], tuple(zip(names, picked, strict=True))) for picked in values]
    random.Random(233).shuffle(expected)
    goals = [original.goal(number) for number in range(len(original))]
    assert [(goal.asin, goal.goal_options) for goal in goals] == expected


def test_weighted_draws_find_the_originals_goals(original):
    weights = [goal["weight"] for goal in original]
    sums = [0, *np.cumsum(weights).tolist()]
    draw = random.Random(3)
    for _ in range(2000):
        share = draw.random()
        assert original.draw(share) == min(bisect(sums, share * sums[-1]), len(weights) - 1)
    assert original.draw(0.0) == 1
    assert sum(weights) == pytest.approx(80.82, abs=0.01)


def test_a_repaired_draw_returns_the_goal_whose_share_it_hits(real_catalogue, fixed):
    weights = [goal.weight for goal in map(fixed.goal, range(len(fixed)))]
    sums = list(accumulate(weights))
    for number in [0, 1, 2, 500, 6908, 6909]:
        middle = (sums[number] - weights[number] / 2) / sums[-1]
        assert fixed.draw(middle) == number
    assert fixed.draw(0.0) == 0
    assert fixed.draw(float(np.nextafter(1, 0))) == len(fixed) - 1
    quirk = make_goals(real_catalogue, replace(FIXED, every_goal_drawn=False))
    assert 0 not in {quirk.draw(share) for share in np.linspace(0, 0.001, 1000)}


def test_weights_draw_products_almost_evenly(fixed):
    rng = np.random.default_rng(0)
    drawn = Counter(fixed.row(fixed.draw(rng.random())) for _ in range(20_000))
    uniform = Counter(fixed.row(int(number)) for number in rng.integers(len(fixed), size=20_000))
    assert len(drawn) > len(uniform)
    assert max(drawn.values()) < max(uniform.values())


@pytest.mark.parametrize("rules", [FIXED, ORIGINAL])
@pytest.mark.parametrize("human", [False, True])
def test_every_goal_can_be_afforded_and_names_its_limit(real_catalogue, rules, human):
    goals = make_goals(real_catalogue, rules, human=human, seed=5)
    for goal in map(goals.goal, range(len(goals))):
        assert goals.price(goal.row) < goal.price_upper
        named = f", and price lower than {goal.price_upper:.2f} dollars"
        assert goal.instruction_text.endswith(named) == (goal.price_upper != 1_000_000)


def test_stored_prices_depend_on_nothing_but_the_product(real_catalogue, small, fixed):
    assert make_goals(real_catalogue, FIXED, seed=1) is make_goals(real_catalogue, FIXED, seed=2)
    drawn = [make_goals(real_catalogue, ORIGINAL, seed=seed) for seed in (1, 2)]
    assert drawn[0][:50] != drawn[1][:50]
    # The same product in another shop, at another place, has the price and limit that it had.
    row = next(row for row in range(1000) if len(real_catalogue.product(row).prices) == 2)
    product = real_catalogue.product(row)
    pricing = "".join(f"${price}" for price in product.prices)
    other = small(item(5), item(asin=product.asin, pricing=pricing, customization_options=""))
    goals = make_goals(other, FIXED)
    assert goals.price(1) == fixed.price(row) == real_catalogue.stored_prices[row]
    limits = {fixed.goal(n).price_upper for n in range(len(fixed)) if fixed.row(n) == row}
    mine = {goals.goal(n).price_upper for n in range(len(goals)) if goals.row(n) == 1}
    assert mine == limits or not limits


def test_seeds_change_prices_and_limits_but_neither_order_nor_weights(real_catalogue):
    first, second = (make_goals(real_catalogue, ORIGINAL, seed=seed) for seed in (1, 2))
    same = ("asin", "goal_options", "weight", "attributes")
    facts = [[[goal[key] for key in same] for goal in goals[:200]] for goals in (first, second)]
    assert facts[0] == facts[1]
    assert first.dice == second.dice


def test_splits_never_share_a_product(fixed, real_catalogue):
    parts = {name: fixed.split(name) for name in ("train", "valid", "test")}
    numbers = np.concatenate(list(parts.values()))
    assert sorted(numbers.tolist()) == fixed.split("all").tolist() == list(range(len(fixed)))
    for name, part in parts.items():
        rows = {fixed.row(number) for number in part.tolist()}
        assert all(in_split(real_catalogue.product(row).asin.encode(), name) for row in rows)
        assert len(rows) > 20


def test_the_originals_splits_are_ranges_of_numbers(original):
    assert original.split("test").tolist() == list(range(500))
    assert original.split("valid").tolist() == list(range(500, 1500))
    assert original.split("train").tolist() == list(range(1500, 6910))
    assert len({original.row(n) for n in range(500)} & {original.row(n) for n in range(1500, 6910)}) > 100
    with pytest.raises(ConfigError, match=r"wanted a split of .*, got 'dev'"):
        original.split("dev")
    with pytest.raises(ConfigError, match="wanted a split"):
        original.draw(0.5, "dev")


@pytest.mark.parametrize("rules", [FIXED, ORIGINAL])
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_draws_within_a_split_go_by_weight(real_catalogue, rules, split):
    goals = make_goals(real_catalogue, rules)
    inside = goals.split(split).tolist()
    sums = [0.0, *accumulate(goals.goal(number).weight for number in inside)]
    for share in np.linspace(0, 0.999, 300).tolist():
        place = bisect(sums, share * sums[-1]) - (1 if rules.every_goal_drawn else 0)
        assert goals.draw(share, split) == inside[min(place, len(inside) - 1)]


def test_a_split_without_goals_is_reported(small):
    catalogue = small(*(item(number, customization_options="") for number in range(1, 3)))
    goals = make_goals(catalogue, ORIGINAL)
    with pytest.raises(ConfigError, match=r"the split 'train' of .* holds no goal: 2 goals in all"):
        goals.draw(0.5, "train")
    assert goals.draw(0.9, "test") == 1


def test_combinations_and_texts_are_those_of_the_page(small):
    options = {"Size": [{"value": "S"}, {"value": "S"}], "Color": [{"value": "A/B"}, {"value": "Tan"}]}
    goals = make_goals(small(item(1, customization_options=options, pricing="$985")), FIXED)
    texts = Counter(goal["instruction_text"] for goal in goals)
    # Values that are listed twice make two goals, as in the original; no limit fits this price.
    assert texts == {f"Find me soft shirts with color: {color}, and size: s": 2 for color in ("a | b", "tan")}
    assert {goal["price_upper"] for goal in goals} == {1_000_000}
    assert goals.goal(0).weight == 0.25


def test_weights_count_attributes_over_all_goals(small):
    entries = {
        "B000000001": {**ENTRY, "instruction_attributes": ["soft", "red"]},
        "B000000002": {**ENTRY, "instruction_attributes": ["soft"]},
        # Nothing can be chosen in a group without values: no goal.
        "B000000003": {**ENTRY, "instruction_attributes": ["soft", "rare"]},
    }
    two = {"size": [{"value": "s"}, {"value": "m"}]}
    items = [item(number, customization_options=options) for number, options in ((1, two), (2, ""), (3, {"size": []}))]
    catalogue = small(*items, entries=entries)
    goals = make_goals(catalogue, FIXED)
    weights = sorted((goal["asin"][-1], goal["weight"]) for goal in goals)
    assert weights == [("1", (1 / 3 + 1 / 2) / 2), ("1", (1 / 3 + 1 / 2) / 2), ("2", 1 / 3)]


def test_people_may_ask_for_one_product_twice(small):
    second = {**ANNOTATION, "instruction": "...two dots..", "instruction_options": []}
    second["instruction_attributes"] = ["a", "b"]
    catalogue = small(item(1), item(2), annotations={"B000000001": [ANNOTATION, second]})
    goals = sorted(make_goals(catalogue, FIXED, human=True), key=lambda goal: goal["instruction_text"])
    assert [goal["instruction_text"].partition(",")[0] for goal in goals] == ["i want a soft shirt", "two dots"]
    assert [goal["goal_options"] for goal in goals] == [["s"], []]
    assert [goal["weight"] for goal in goals] == [1, 1]
    assert [goal["attributes"] for goal in goals] == [["soft"], ["a", "b"]]


def test_catalogues_without_goals_or_entries_are_refused(small):
    catalogue = small(item(1), entries={"B000000001": {"attributes": []}})
    with pytest.raises(InvalidCatalogue, match=r"no goals in .*: no product has an instruction"):
        make_goals(catalogue, FIXED)
    with pytest.raises(InvalidCatalogue, match="no product has an annotation"):
        make_goals(catalogue, FIXED, human=True)
    annotations = {"B000000001": [ANNOTATION]}
    catalogue = small(item(1), item(2), entries={"B000000001": ENTRY}, annotations=annotations)
    with pytest.raises(InvalidCatalogue, match="product B000000002 is missing in the file of attributes"):
        make_goals(catalogue, ORIGINAL)
    assert len(make_goals(catalogue, ORIGINAL, human=True)) == 1
    assert len(make_goals(catalogue, FIXED)) == 2


@pytest.mark.parametrize("human", [False, True])
def test_goals_of_few_options_are_left_out(real_catalogue, human):
    everything = make_goals(real_catalogue, FIXED, human=human)
    expected = [goal for goal in everything if len(goal["goal_options"]) >= 2]
    some = make_goals(real_catalogue, FIXED, human=human, min_options=2)
    assert 0 < len(expected) < len(everything)
    assert list(some) == expected
    assert pickle.loads(pickle.dumps(some)) is some
    assert sum(len(some.split(name)) for name in ("train", "valid", "test")) == len(some)
    # Those that are drawn afterwards are drawn from what is left.
    assert all(goal in expected for goal in make_goals(real_catalogue, FIXED, human=human, min_options=2, limit=2))


def test_goals_are_a_list_of_copies(fixed, real_catalogue):
    assert fixed[-1] == fixed[len(fixed) - 1]
    assert fixed[3:6] == [fixed[3], fixed[4], fixed[5]]
    assert list(islice(fixed, 2)) == fixed[:2]
    for number in (len(fixed), -len(fixed) - 1):
        with pytest.raises(IndexError, match=f"wanted a goal from -6910 to 6909, got {number}"):
            fixed[number]
    assert fixed[np.int64(5)] == fixed[5]
    goal = fixed[0]
    goal["attributes"].append("x")
    goal["goal_options"].clear()
    assert fixed[0] != goal
    with pytest.raises(ConfigError, match="wanted goals of min_options >= 9, the most that any goal wants is "):
        make_goals(real_catalogue, FIXED, min_options=9)
    for limit in (0, -1):
        with pytest.raises(ConfigError, match=f"wanted limit_goals >= 1 or None, got {limit}"):
            make_goals(real_catalogue, FIXED, limit=limit)
    size = sum(path.stat().st_size for path in (real_catalogue.data / "goals-instruction").iterdir())
    assert size / len(fixed) < 40


def test_copies_and_pickles_are_the_same_goals(original):
    for other in (copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
        assert other[:20] == original[:20]
        assert (other.dice, other.price(5), len(other)) == (original.dice, original.price(5), len(original))
    assert len(pickle.dumps(original)) < 2000


def test_goals_do_not_depend_on_the_hash_seed(tmp_path):
    files = write_files(tmp_path / "in", [item(number, pricing="$5$50") for number in range(1, 30)])
    code = (
        "import sys\n"
        "from tsr_gym_envs.webshop.catalogue.opening import import_catalogue\n"
        "from tsr_gym_envs.webshop.catalogue.goals import make_goals\n"
        "from tsr_gym_envs.webshop.repairs import repairs_of\n"
        f"c = import_catalogue({str(files)!r}, {str(tmp_path)!r} + '/out')\n"
        "print([list(make_goals(c, repairs_of(rules))) for rules in ('fixed', 'original')])"
    )
    store = import_catalogue(files, tmp_path / "here")
    assert run_python(code, hash_seed="1") == f"{[list(make_goals(store, rules)) for rules in (FIXED, ORIGINAL)]}\n"


def test_repairs_of_goals_are_switches_of_their_own(real_catalogue, original):
    stored = make_goals(real_catalogue, repairs_of("original", ["stored_prices"]))
    assert [goal["asin"] for goal in stored[:100]] == [goal["asin"] for goal in original[:100]]
    assert stored.draw(0.0) == 1
    split = make_goals(real_catalogue, repairs_of("original", ["product_splits"]))
    assert split.split("test").tolist() == make_goals(real_catalogue, Repairs()).split("test").tolist()
    assert split[7] == original[7]


@pytest.fixture
def store(tmp_path):
    items = [item(number, pricing="$5$50") for number in range(1, 40)]
    return import_catalogue(write_files(tmp_path / "in", items), tmp_path / "out")


def test_arrays_are_built_once_and_mapped_by_everyone(store):
    first = goal_table(store, "instruction")
    (folder,) = store.data.glob("goals-*")
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = goal_table(store, "instruction")
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert np.array_equal(first.tasks, again.tasks)
    for array in (again.tasks, again.combinations, again.cumulative, again.splits["train"][0]):
        assert isinstance(array.base, np.memmap) or isinstance(array.base.base, np.memmap)
        assert not array.flags.writeable


def test_prices_are_kept_for_each_seed(store):
    table = goal_table(store, "instruction")
    drawn = [drawn_prices(store, table, "instruction", seed) for seed in (0, 1, -1, 2**70)]
    assert len({prices.tobytes() for prices, _ in drawn}) == 3
    names = [path.name for path in sorted(store.data.glob("prices-*"))]
    assert names == [f"prices-instruction-{seed}" for seed in (-1, 0, 1, 2**70)]


def test_a_build_that_is_killed_leaves_nothing_that_is_taken_for_whole(store):
    code = (
        "import os, signal, numpy\n"
        "from tsr_gym_envs.webshop.catalogue import goals as goal_tables\n"
        "from tsr_gym_envs.webshop.catalogue.store import open_store\n"
        "save, saved = numpy.save, []\n"
        "def dying(path, values):\n"
        "    save(path, values); saved.append(path)\n"
        "    if len(saved) == 4: os.kill(os.getpid(), signal.SIGKILL)\n"
        "goal_tables.np.save = dying\n"
        f"goal_tables.goal_table(open_store({str(store.path)!r}), 'instruction')"
    )
    assert run_python(code, check=False).returncode == -9
    assert len(list(store.data.glob(".*.partial"))) == 1
    assert len(make_goals(store, FIXED)) == 78
    assert list(store.data.glob(".*.partial")) == []


def test_processes_that_build_at_once_get_the_same_goals(store):
    code = (
        "from tsr_gym_envs.webshop.catalogue.store import open_store\n"
        "from tsr_gym_envs.webshop.catalogue.goals import make_goals\n"
        "from tsr_gym_envs.webshop.repairs import repairs_of\n"
        f"print(list(make_goals(open_store({str(store.path)!r}), repairs_of('original'), seed=3)))"
    )
    command = [sys.executable, "-c", code]
    children = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = {child.communicate(timeout=100)[0] for child in children}
    assert outputs == {f"{list(make_goals(store, ORIGINAL, seed=3))}\n"}


def test_where_the_store_cannot_be_written_the_arrays_go_into_the_cache(store, tmp_path, monkeypatch):
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    expected = make_goals(store, FIXED)[:5]
    assert list(store.data.glob("goals-*")) == []
    assert len(list((tmp_path / "cache").rglob("goals-instruction"))) == 1
    monkeypatch.undo()
    shutil.rmtree(tmp_path / "cache")
    table = goal_table(store, "instruction")
    assert [store.product(table.rows[task]).asin for task in table.tasks[:5]] == [goal["asin"] for goal in expected]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: os.truncate(folder / "tasks.npy", 140), r"tasks\.npy is missing or damaged"),
        (lambda folder: (folder / "weights.npy").unlink(), "goals-instruction is incomplete: .*weights"),
        (lambda folder: (folder / "train.npy").unlink(), "goals-instruction is incomplete: 'train'"),
    ],
)
def test_damaged_arrays_are_reported(store, damage, message):
    goal_table(store, "instruction")
    damage(store.data / "goals-instruction")
    with pytest.raises(InvalidCatalogue, match=message):
        goal_table(store, "instruction")
