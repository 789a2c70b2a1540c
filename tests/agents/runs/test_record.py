"""Record: the line of an update says what was done, also where that was nothing."""

import json
from functools import partial

from tests.agents.short_runs import records, trained
from tsr_gym import Budget
from tsr_gym.agents.cli import train
from tsr_gym.agents.episodes.collect import ChosenSearch, Collected
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.lessons.filters import Filtered
from tsr_gym.agents.runs.progress import Progress
from tsr_gym.agents.runs.record import update_record
from tsr_gym.agents.strategies.harvest import harvested

NONE = ("success", "reward_mean", "reward_std", "response_length", "turns", "valid", "grad_norm")


@harvested("episodes")
def silent(tree):
    """Ask for nothing, so that there is nothing to learn from."""
    yield from ()


def test_an_update_without_trajectories_has_a_line_without_means():
    search = ChosenSearch(partial(silent), "silent", "leaves", 1, 1)
    collected = Collected([Group(3, ()), Group(4, ())], [[], []], Budget(), 0, {})
    line = update_record(search, Progress(1, 2, 0), collected, Filtered(), {}, {})
    assert {name: line[name] for name in NONE} == dict.fromkeys(NONE)
    assert (line["trajectories"], line["groups"], line["groups_kept"]) == (0, 2, 0)
    assert json.loads(json.dumps(line)) == line


def test_a_run_whose_searches_bring_nothing_goes_on_and_says_so(base_model, tmp_path):
    for keep in ("none", "uncertainty"):
        run = trained(
            tmp_path / keep,
            base_model,
            search={"search": f"{__name__}:silent"},
            lessons={"filter": keep},
            run={"updates": 2, "eval_instances": 2},
        )
        lines = records(run)
        assert [(line["step"], line["success"], line["trajectories"], line["groups"]) for line in lines] == [
            *[(1, None, 0, 2), (2, None, 0, 2)]
        ]


def test_an_update_without_trajectories_is_told_without_means():
    line = {"success": None, "reward_mean": None, "groups_kept": 0, "groups": 2, "sampled_tokens_total": 1200}
    assert train._line(line) == "success -  return -  kept 0/2  tokens 1,200"
    line |= {"success": 0.25, "reward_mean": -1.5, "groups_kept": 1}
    assert train._line(line) == "success 0.25  return -1.50  kept 1/2  tokens 1,200"
