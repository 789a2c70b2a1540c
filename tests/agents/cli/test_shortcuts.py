"""Shortcuts of the command line: numbers beside a call are folded into it, or refused."""

import pytest

from tsr_gym.agents.cli import main
from tsr_gym.agents.cli.shortcuts import fold_shortcuts
from tsr_gym.errors import ConfigError


@pytest.mark.parametrize(
    ("args", "folded"),
    [
        (["sokoban", "--search", "beam", "--width", "3"], ["sokoban", "--search", "beam(width=3)"]),
        (["--search=beam(width=3)", "--branching=5"], ["--search", "beam(width=3, branching=5)"]),
        (["--search", "best_of_n", "--n", "8", "--seed", "1"], ["--seed", "1", "--search", "best_of_n(n=8)"]),
        (["--keep", "0.5"], ["--filter", "uncertainty(ratio=0.5)"]),
        (["--filter", "mixed_success", "--keep", "0.5"], ["--filter", "mixed_success(ratio=0.5)"]),
        (["--filter", "top_p", "--keep", "0.9"], ["--filter", "top_p(p=0.9)"]),
        (["--lr", "1e-3"], ["--lr", "1e-3"]),
    ],
)
def test_shortcuts_are_folded_into_the_calls(args, folded):
    assert fold_shortcuts(args) == folded


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--search", "puct(simulations=4)", "--branching", "9"], "the strategy 'puct' has no branching"),
        (["--search", "beam(width=3)", "--width", "7"], "width stands in .* and again as width=7"),
        (["--search", "naive", "--depth", "2"], "the strategy 'naive' has no depth"),
        (["--filter", "varied", "--keep", "0.5"], "has no ratio"),
        (["--filter", "mixed_success(ratio=0.2)", "--keep", "0.5"], "ratio stands in"),
        (["--search", "baem"], "did you mean beam"),
    ],
)
def test_a_number_that_stands_in_both_places_or_is_not_known_is_refused(args, message):
    with pytest.raises(ConfigError, match=message):
        fold_shortcuts(args)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--search", "puct(simulations=4)", "--branching", "9"], "the strategy 'puct' has no branching"),
        (["--search", "beam(width=3)", "--width", "7"], "say it in one of the two places"),
        (["--search", "best_of_n(n=8)"], "may select fewer than the 16 paths"),
        (["--search", "best_of_n", "--n", "8"], "may select fewer than the 16 paths"),
        (["--search", "tsr_gym.agents.strategies:best_of_n", "--n", "8"], "may select fewer than the 16 paths"),
        (["--search", "naive(rollouts=3)"], "plays 3 episodes per instance and trajectories is 16"),
    ],
)
def test_the_command_refuses_them_before_a_run(args, message, capsys, tmp_path):
    out = tmp_path / "run"
    assert main(["train", "sokoban", *args, "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()
