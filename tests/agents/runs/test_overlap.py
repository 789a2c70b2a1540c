"""Searching ahead: which weights every update is sampled by, and runs that repeat and go on all the same."""

import json

import pytest

from tests.agents.short_runs import records, result, short_run
from tsr_gym.agents.runs.trainer import resume_run, start_run
from tsr_gym.errors import EngineFailed

RUN = {"updates": 6, "eval_every": 0, "checkpoint_every": 4, "overlap": True, "save_trees": 2}


def train(out, model, **changes):
    assert start_run(short_run(out, model, run=RUN | changes), model).run()
    return result(out)


@pytest.fixture(scope="module")
def ahead(base_model, tmp_path_factory):
    run = tmp_path_factory.mktemp("ahead") / "run"
    return run, train(run, base_model)


def test_updates_learn_from_samples_of_the_weights_before_the_last_ones_but_not_across_a_checkpoint(ahead):
    run, found = ahead
    # The first update of a run and the one after the checkpoint of update 4 have nothing that was sampled before.
    assert [line["weights_behind"] for line in found["metrics"]] == [0, 1, 1, 1, 0, 1]
    versions = set()
    for path in sorted((run / "trees" / "000006").glob("*")):
        for line in path.read_text().splitlines()[1:]:
            node = json.loads(line)
            if node["parent"] is not None:
                versions.add(node["candidate"][-1])
    assert versions == {4}


def test_it_searches_the_instances_that_a_run_without_it_searches(ahead, base_model, tmp_path):
    _, found = ahead
    plain = train(tmp_path / "run", base_model, overlap=False)
    assert all("weights_behind" not in line for line in plain["metrics"])
    first, other = found["metrics"][0], plain["metrics"][0]
    assert {**first, "weights_behind": 0} == {**other, "weights_behind": 0}
    # From the second update on the samples are of other weights.
    assert found["metrics"][2]["policy_loss"] != plain["metrics"][2]["policy_loss"]
    assert [line["groups"] for line in found["metrics"]] == [line["groups"] for line in plain["metrics"]]


def test_a_run_that_goes_on_from_a_checkpoint_repeats_to_the_last_bit(ahead, base_model, tmp_path):
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
    with pytest.raises(EngineFailed, match="sampled by weights of version 9, wanted is version 0"):
        trainer.run()
    assert len(records(tmp_path / "run")) == 1
