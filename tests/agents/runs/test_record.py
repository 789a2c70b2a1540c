"""The records of updates, also of empty ones, and the advantages in saved trees."""

import json
from functools import partial

import pytest
import torch

from tests.agents.reports.view.trees import node
from tests.agents.short_runs import records, short_run, trained
from tsr_gym import Budget
from tsr_gym.agents.cli import train
from tsr_gym.agents.episodes.collect import ChosenSearch, Collected, choose_search
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.episodes.trajectory import Group, learned_from, trajectory_to
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.lessons.filters import Filtered
from tsr_gym.agents.runs.progress import Progress
from tsr_gym.agents.runs.record import note_advantages, update_record
from tsr_gym.agents.strategies.order import harvested
from tsr_gym.tree import Candidate, Tree

NONE = ("success", "reward_mean", "reward_std", "response_length", "turns", "valid", "grad_norm")


@harvested("episodes")
def silent(tree):
    """Request no samples, so that there is nothing to learn from."""
    yield from ()


def test_an_update_without_trajectories_has_a_line_without_means():
    search = ChosenSearch(partial(silent), "silent", "leaves", 1, 1)
    collected = Collected([Group(3, ()), Group(4, ())], [[], []], Budget(), 0, {})
    line = update_record(search, Progress(1, 2, 0), collected, Filtered(), {}, {})
    assert {name: line[name] for name in NONE} == dict.fromkeys(NONE)
    assert (line["trajectories"], line["groups"], line["groups_kept"]) == (0, 2, 0)
    assert json.loads(json.dumps(line)) == line


def test_a_run_whose_searches_return_nothing_continues_and_records_that(base_model, tmp_path):
    for keep in ("none", "uncertainty"):
        changes = {"search": {"search": f"{__name__}:silent"}, "lessons": {"filter": keep}}
        run = trained(tmp_path / keep, base_model, **changes, run={"updates": 2, "eval_instances": 2})
        facts = [[line[name] for name in ("step", "success", "trajectories", "groups")] for line in records(run)]
        assert facts == [[1, None, 0, 2], [2, None, 0, 2]]


def test_an_update_without_trajectories_is_printed_without_means():
    line = {"success": None, "reward_mean": None, "groups_kept": 0, "groups": 2, "sampled_tokens_total": 1200}
    assert train._line(line) == "success -  return -  kept 0/2  tokens 1,200"
    line |= {"success": 0.25, "reward_mean": -1.5, "groups_kept": 1}
    assert train._line(line) == "success 0.25  return -1.50  kept 1/2  tokens 1,200"


def forked_tree():
    """Turn 1 is shared by the ends 2 and 3; the end 4 shares none; tokens are numbered by node."""
    tree = Tree(seed=1)
    tree.add(node(None, 0))
    for index, (parent, depth, size) in enumerate([(0, 1, 2), (1, 2, 1), (1, 2, 3), (0, 1, 1)], start=1):
        candidate = Candidate("x", (90 + parent,), tuple(10 * index + k for k in range(size)), (-1.0,) * size)
        tree.add(node(parent, depth, candidate, end="" if index == 1 else "failed"))
    return tree


def noted(places, *, harvest="selected", trees=1, **search):
    """Write token id plus 100 per trajectory as the advantage of each token; return the advantages of each tree."""
    grown = [forked_tree() for _ in range(trees)]
    ways = [trajectory_to(grown[0], leaf, selected_by=by, number=number) for leaf, by, number in places]
    groups = [Group(5, tuple(ways))]
    batch = collate(groups)
    advantages = torch.where(batch.sampled, batch.ids + 100 * batch.trajectory[:, None], 0).float()
    config = short_run("run", "model")
    plan = choose_search(SearchConfig(**search))._replace(harvest=harvest)
    note_advantages(Collected(groups, [grown], Budget(), 1, {}), groups, batch, advantages, config, plan)
    return [dict(learned_from(tree).of) for tree in grown]


def test_tokens_have_their_advantages_in_their_trees():
    # Turn 1 lies on trajectories 0 and 1: its tokens 10 and 11 have 10, 11 and 110, 111.
    (advantages,) = noted([(2, "beam", 0), (3, "beam", 0), (4, "beam", 0)])
    assert advantages == {1: (60.0, 61.0), 2: (20.0,), 3: (130.0, 131.0, 132.0), 4: (240.0,)}
    assert noted([(2, "beam", 0), (4, "naive", 1)], trees=2) == [{1: (10.0, 11.0), 2: (20.0,)}, {4: (140.0,)}]
    # If all episodes are plain, their tree is the only one.
    assert noted([(4, "naive", 3)], trees=1) == [{4: (40.0,)}]
    places = [(2, "random_branching", 0), (4, "random_branching", 1)]
    assert noted(places, harvest="branches", trees=2) == [{1: (10.0, 11.0), 2: (20.0,), 4: (140.0,)}, {}]


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_the_saved_trees_of_a_run_hold_advantages(base_model, tmp_path, algorithm):
    run = trained(tmp_path / "run", base_model, learn={"algorithm": algorithm}, run={"updates": 2, "save_trees": 2})
    for file in sorted((run / "trees" / "000002").glob("*.jsonl.gz")):
        tree = Tree.load(file)
        learned = learned_from(tree)
        assert learned.estimator == {"ppo": "gae", "grpo": "grpo"}[algorithm]
        assert {node: len(advantages) for node, advantages in learned.of.items()} == {
            index: len(node.candidate.token_ids) for index, node in enumerate(tree.nodes) if index
        }
        # GRPO gives every token of an episode the same number.
        assert algorithm == "ppo" or all(len(set(advantages)) == 1 for advantages in learned.of.values())
