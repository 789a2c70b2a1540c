"""The file for Prometheus: text that its format allows, of the latest records, whole at every moment."""

import re

import pytest

from tests.agents.short_runs import UPDATES, records, short_run
from tsr_gym.agents.runs.prometheus import MetricsFile, exposition
from tsr_gym.agents.runs.trainer import start_run
from tsr_gym.errors import CheckpointError

# From the format's description: a name, labels whose values escape backslash, quote and line feed, and a number.
SAMPLE = re.compile(
    r'(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\{(?P<labels>[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*"(?:,[a-zA-Z_]\w*="(?:[^"\\\n]|'
    r'\\["\\n])*")*)\} (?P<value>-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf)|nan)'
)


def read(text):
    """Return the samples of a text in Prometheus' format, after a look that it is one."""
    assert text.endswith("\n")
    found = {}
    typed = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind == "gauge"
            assert name not in typed
            typed.add(name)
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        assert sample["name"] in typed
        found[sample["name"], sample["labels"]] = float(sample["value"])
    return found


def test_a_name_that_the_format_does_not_allow_is_escaped():
    found = read(exposition({"update": {"step": 1}}, run='a "b"\\c\nd'))
    assert found == {("tsr_update_step", 'run="a \\"b\\"\\\\c\\nd"'): 1.0}


def test_words_lists_and_the_unknown_are_left_out():
    record = {"step": 1, "search": "beam", "interval": [0.1, 0.2], "kl": None, "ok": True, "loss": -1e-9}
    assert {name for name, _ in read(exposition({"evaluation": record}, run="a"))} == {
        "tsr_evaluation_step",
        "tsr_evaluation_loss",
    }


def test_the_file_has_the_numbers_of_the_last_update_and_evaluation(base_model, tmp_path):
    run, path = tmp_path / "run", tmp_path / "to" / "tsr.prom"
    assert start_run(short_run(run, base_model), base_model).run(watch=MetricsFile(path, "mine"))
    found = read(path.read_text())
    update, evaluation = records(run)[-1], records(run, "evaluations")[-1]
    assert found["tsr_update_step", 'run="mine"'] == UPDATES
    for name in ("success", "reward_mean", "grad_norm", "sampled_tokens_total"):
        assert found[f"tsr_update_{name}", 'run="mine"'] == update[name]
    assert found["tsr_evaluation_success", 'run="mine"'] == evaluation["success"]
    assert found["tsr_update_seconds", 'run="mine",part="model"'] > 0
    assert [one.name for one in path.parent.iterdir()] == ["tsr.prom"]


def test_a_file_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="could not be written"):
        MetricsFile(tmp_path / "file" / "tsr.prom", "a")("update", {"step": 1})
