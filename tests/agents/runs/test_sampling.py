"""The sampler of a run: its limits of tokens, and starts at states of its own earlier trees."""

import gzip
import json

import pytest

from tests.agents.episodes.test_collect import collector
from tests.agents.short_runs import records, result, short_run, trained
from tests.conftest import deep
from tsr_gym import ConfigError, InvalidTree
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.episodes.start_states import StartStateBank, States
from tsr_gym.agents.runs.check import check_start
from tsr_gym.agents.runs.sampling import FILE, NUMBERS, Limit, StartStates, groups_at_once
from tsr_gym.agents.runs.trainer import resume_run, start_run
from tsr_gym.errors import EngineFailed


class Counting(States):
    """A user-defined source of start states, which also counts the episodes that began at them."""

    def __init__(self):
        super().__init__()
        self.tries = self.successes = 0

    def keep(self, trees, begun):
        super().keep(trees, begun)
        self.tries += sum(group.tries for group in begun)
        self.successes += sum(group.successes for group in begun)

    def numbers(self):
        return {"tries": self.tries, "successes": self.successes}

    def recall(self, numbers):
        self.tries, self.successes = int(numbers["tries"]), int(numbers["successes"])


COUNTING = "tests.agents.runs.test_sampling:Counting"


def keys(starts):
    return [start and start.key for start in starts]


def searched(count=24):
    """Return groups and trees of plain play on the lake, where some episodes reach the goal."""
    return collector(SearchConfig(trajectories=12), "FrozenLake").collect(0, count)


def test_states_with_some_success_are_kept_from_the_trees_of_a_run():
    states = StartStates(2, seed=0)
    states.keep(searched())
    assert len(states.bank) > 0
    assert all(0 < start_state.success_rate < 1 for start_state in states.bank)
    nothing = StartStates(0, seed=0)
    nothing.keep(searched())
    assert len(nothing.bank) == 0


def test_groups_begin_at_states_as_soon_as_there_are_any_whatever_their_round():
    states = StartStates(2, seed=0)
    assert states.choose(0, 5) == [None] * 5
    states.keep(searched())
    starts = states.choose(10, 5)
    assert [start is not None for start in starts] == [False, False, True, False, True]
    # They derive from the number of the group and not from earlier draws.
    assert states.choose(10, 5) == starts
    collected = collector(SearchConfig(trajectories=4), "FrozenLake").collect(10, 5, starts)
    for grown, start in zip(collected.trees, starts, strict=True):
        seen = grown[0].nodes[0].observation
        assert start is None or seen == start.observation
    states = StartStates(2, seed=0)
    states.keep(searched())
    whole, rest = states.choose(10, 5), states.choose(12, 5)
    assert rest[:3] == whole[2:]


@pytest.mark.parametrize("first", range(7))
def test_a_fixed_number_of_an_updates_groups_in_a_row_begins_at_states(first):
    states = StartStates(3, seed=0)
    states.keep(searched())
    assert sum(start is not None for start in states.choose(first, 7)) == 3


def test_the_start_states_of_a_run_are_in_its_checkpoints(tmp_path):
    states, again = StartStates(1, seed=3), StartStates(1, seed=3)
    states.keep(searched())
    states.save(tmp_path)
    again.load(tmp_path)
    assert keys(again.bank) == keys(states.bank)
    assert keys(again.choose(7, 2)) == keys(states.choose(7, 2))


@pytest.mark.parametrize("source", ["states", COUNTING])
def test_start_states_read_from_a_checkpoint_continue_as_without_it(source, tmp_path):
    """Keep states for some updates; a second run saves and reads them before every update."""
    whole, again = StartStates(2, seed=3, source=source), StartStates(2, seed=3, source=source)
    own = collector(SearchConfig(trajectories=8), "FrozenLake")
    begun = 0
    for update in range(4):
        folder = tmp_path / str(update)
        folder.mkdir()
        again.save(folder)
        again = StartStates(2, seed=3, source=source)
        again.load(folder)
        starts = whole.choose(6 * update, 6)
        assert keys(again.choose(6 * update, 6)) == keys(starts)
        begun += sum(start is not None for start in starts)
        collected = own.collect(6 * update, 6, starts)
        whole.keep(collected, 6 * update)
        again.keep(collected, 6 * update)
        assert again.metrics() == whole.metrics()
    assert (begun, again.source.numbers()) == (6, whole.source.numbers())
    assert list(again.bank) == list(whole.bank)


def test_groups_that_began_at_states_are_identified_by_their_numbers():
    states = StartStates(1, seed=0, source=COUNTING)
    states.keep(searched())
    states.choose(24, 3)
    collected = collector(SearchConfig(trajectories=5), "FrozenLake").collect(24, 3, states.choose(24, 3))
    states.keep(collected, 24)
    solved = sum(path.success for path in collected.groups[2].trajectories)
    assert states.source.numbers() == {"tries": 5, "successes": solved}
    # No group began at a state, so the counts stay.
    states.keep(searched(3), 27)
    assert states.source.numbers() == {"tries": 5, "successes": solved}


def test_metrics_of_start_states():
    states = StartStates(2, seed=0, source=COUNTING)
    states.keep(searched())
    assert states.metrics() == {"start_states": len(states.bank), "start_states_tries": 0, "start_states_successes": 0}
    assert StartStates(0, seed=0).metrics() == {}


def test_damaged_numbers_are_refused_and_none_can_be_read(tmp_path):
    states = StartStates(1, seed=3, source=COUNTING)
    states.keep(searched())
    states.save(tmp_path)
    (tmp_path / NUMBERS).write_text('{"tries": 2}')
    with pytest.raises(InvalidTree, match="damaged"):
        StartStates(1, seed=3, source=COUNTING).load(tmp_path)
    states, again = StartStates(1, seed=3), StartStates(1, seed=3)
    states.keep(searched())
    states.save(tmp_path)
    (tmp_path / NUMBERS).unlink()
    again.load(tmp_path)
    assert len(again.bank) == len(states.bank) > 0


def test_starts_that_draw_nonsense_are_named():
    states = StartStates(1, seed=0, source="tests.agents.runs.test_sampling:Counting")
    states.keep(searched())
    states.source.draw = lambda rng: "here"
    with pytest.raises(ConfigError, match=r"Counting.draw: wanted a StartState, got 'here'"):
        states.choose(0, 1)


def test_old_states_are_dropped_first():
    bank = StartStateBank()
    states = StartStates(1, seed=0)
    states.keep(searched())
    bank.add(states.bank)
    keys = [start_state.key for start_state in bank]
    bank.keep_last(2)
    assert [start_state.key for start_state in bank] == keys[-2:]
    bank.keep_last(2)
    assert len(bank) == 2


@pytest.mark.parametrize("source", [COUNTING, deep("states")])
def test_a_run_with_start_states_resumes_bit_for_bit(source, base_model, tmp_path):
    search = {"search": "naive", "trajectories": 4, "groups": 3, "start_states": 1, "start_states_from": source}
    changes = {"search": search, "model": {"max_tokens": 16}, "run": {"updates": 4, "checkpoint_every": 1}}
    whole = trained(tmp_path / "whole", base_model, **changes)
    assert len(records(whole)) == 4
    assert (whole / "checkpoints" / "000004" / FILE).is_file()
    half = trained(tmp_path / "half", base_model, **{**changes, "run": {"updates": 2, "checkpoint_every": 1}})
    assert resume_run(half, updates=4).run()
    assert result(half) == result(whole)


def test_more_start_states_than_groups_and_unknown_sources_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="wanted start_states <= groups=2, got 3"):
        SearchConfig(groups=2, start_states=3)
    with pytest.raises(ConfigError, match="did you mean states"):
        check_start(short_run(tmp_path / "run", "model", search={"start_states_from": "state"}))


@pytest.mark.parametrize(
    ("left", "sampled", "groups", "least", "wanted"),
    [
        # 100 tokens a group: with 4,000 left, ten groups have four times that.
        (4000, 1000, 10, 1, 10),
        (3999, 1000, 10, 1, 9),
        (399, 1000, 10, 1, 1),
        (1, 1000, 10, 1, 1),
        # One for every process.
        (399, 1000, 10, 2, 2),
        # Before the first group there is no mean.
        (10_000, 0, 0, 1, 1),
    ],
)
def test_groups_that_are_searched_together_have_four_times_their_mean_left(left, sampled, groups, least, wanted):
    assert groups_at_once([Limit(sampled + left)], spent=sampled, groups=groups, least=least) == wanted


def test_the_narrower_of_two_limits_counts():
    # 100 tokens a group: 5 groups within the soft limit, 10 within the hard one.
    soft, hard = Limit(1500, margin=1), Limit(5000)
    assert groups_at_once([soft, hard], spent=1000, groups=10) == 5
    assert groups_at_once([Limit(3000, margin=1), hard], spent=1000, groups=10) == 10


RUN = {"updates": 6, "eval_every": 0, "checkpoint_every": 4, "overlap": True, "save_trees": 2}


def train(out, model, **changes):
    assert start_run(short_run(out, model, run=RUN | changes), model).run()
    return result(out)


@pytest.fixture(scope="module")
def ahead(base_model, tmp_path_factory):
    run = tmp_path_factory.mktemp("ahead") / "run"
    return run, train(run, base_model)


def test_updates_learn_from_samples_of_the_weights_before_but_not_across_a_checkpoint(ahead):
    run, searched_ahead = ahead
    # The first update of a run and the one after the checkpoint of update 4 have no samples of earlier weights.
    assert [line["weights_behind"] for line in searched_ahead["metrics"]] == [0, 1, 1, 1, 0, 1]
    versions = set()
    for path in sorted((run / "trees" / "000006").glob("*")):
        for line in gzip.decompress(path.read_bytes()).splitlines()[1:]:
            node = json.loads(line)
            if node["parent"] is not None:
                versions.add(node["candidate"][-1])
    assert versions == {4}


def test_the_instances_are_those_of_a_run_without_overlap(ahead, base_model, tmp_path):
    _, searched_ahead = ahead
    plain = train(tmp_path / "run", base_model, overlap=False)
    assert all("weights_behind" not in line for line in plain["metrics"])
    first, other = searched_ahead["metrics"][0], plain["metrics"][0]
    assert {**first, "weights_behind": 0} == {**other, "weights_behind": 0}
    # From the second update on the samples are of earlier weights.
    assert searched_ahead["metrics"][2]["policy_loss"] != plain["metrics"][2]["policy_loss"]
    assert [line["groups"] for line in searched_ahead["metrics"]] == [line["groups"] for line in plain["metrics"]]


def test_a_resumed_run_with_overlap_repeats_bit_for_bit(ahead, base_model, tmp_path):
    _, expected = ahead
    run = tmp_path / "run"
    begun = start_run(short_run(run, base_model, run=RUN), base_model)
    assert not begun.run(stop=lambda: begun.progress.update == 4)
    assert resume_run(run).run()
    assert result(run) == expected


def test_samples_of_a_version_that_is_not_expected_stop_the_run(base_model, tmp_path):
    trainer = start_run(short_run(tmp_path / "run", base_model, run=RUN), base_model)
    begin = trainer.parts.collector.begin

    def late(first, count, **options):
        trainer.parts.chat.engine.load_weights((), version=9)
        return begin(first, count, **options)

    trainer.parts.collector.begin = late
    with pytest.raises(EngineFailed, match=r"version 9.*version 0"):
        trainer.run()
    assert len(records(tmp_path / "run")) == 1
