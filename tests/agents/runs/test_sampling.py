"""Sampling: how many groups are searched together before a limit, and searches ahead of the learner."""

import json

import pytest

from tests.agents.short_runs import records, result, short_run
from tsr_gym.agents.runs.sampling import Limit, groups_at_once
from tsr_gym.agents.runs.trainer import resume_run, start_run
from tsr_gym.errors import EngineFailed


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
        for line in path.read_text().splitlines()[1:]:
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
