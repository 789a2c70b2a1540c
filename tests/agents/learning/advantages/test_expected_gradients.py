"""The exact expected gradient of every estimator on a decision tree whose policy decides on the number of turns.

The table in docs/objectives.md is computed here; where it differs, the test's message is the new table.
"""

from dataclasses import replace
from functools import cache
from itertools import count, product
from math import prod
from pathlib import Path

import pytest

from tests.agents.learning.advantages.forests import Sampled, batch_of, path
from tsr_gym.agents.learning.advantages.choose_estimator import choose_estimator
from tsr_gym.agents.learning.estimators import ESTIMATORS

# At each of three decisions an episode continues or ends, with these probabilities of continuing and these rewards.
GO = (0.6, 0.3, 0.5)
REWARDS = {(0, True): 0.2, (0, False): 0.4, (1, True): -0.3, (1, False): 0.1, (2, True): 1.0, (2, False): 0.0}
PLAYS = [(False,), (True, False), (True, True, False), (True, True, True)]
DOCUMENT = Path(__file__).parents[4] / "docs/objectives.md"
CRITIC, WHITENED = ("gae", "turn_gae", "bi_level_gae"), ("reinforce_pp", "treepo")
MEAN = "the mean holds the sample itself, (G - 1) / G"
DEVIATION = "groups of small deviations weigh more"
WHITE = "mean and deviation are over tokens, and long episodes have more"
OWN = "a reward counts for its own turn alone, among the episodes that have the turn"
COPIES = "a turn counts once per leaf, and going on makes leaves"
PLAY, TREES = "plain play", "trees"
ROWS = [
    *((text, PLAY, "") for text in ("rloo", "turn_rloo", "tree_backup", "gae", "turn_gae")),
    ("bi_level_gae(high_level_gamma=1.0)", PLAY, ""),
    ("bi_level_gae", PLAY, "rewards of later turns are discounted"),
    *((text, PLAY, MEAN) for text in ("dr_grpo", "treepo(whiten=False)")),
    *((text, PLAY, DEVIATION) for text in ("grpo", "tree_grpo")),
    *((text, PLAY, WHITE) for text in ("reinforce_pp", "reinforce_pp(subtract='nothing')", "treepo")),
    ("gigpo", PLAY, f"discount, and {DEVIATION}"),
    ("gigpo(gamma=1.0, scale='none')", PLAY, "means over the visits of a state, few of late ones, hold the sample"),
    ("graph", PLAY, "a move is worth its way to a success, not its reward"),
    ("tspo", PLAY, f"in groups that failed, {OWN}; {DEVIATION}"),
    *((text, PLAY, f"{OWN}; {DEVIATION}") for text in ("mt_grpo", "mt_grpo(ragged='present')")),
    ("treerl", PLAY, "the first turn has its comparison twice"),
    ("tree_backup", TREES, ""),
    ("tree_grpo", TREES, f"{COPIES}; {DEVIATION}"),
    ("treepo(whiten=False)", TREES, COPIES),
    ("treerl", TREES, f"{COPIES}, divided by the root of their number"),
]


def true_gradient(weight=1.0):
    """Return the derivative of the expected return by the logit of each decision.

    Args:
        weight: Of the rewards before the last turn.
    """
    after, derivative = 0.0, [0.0, 0.0, 0.0]
    for at in (2, 1, 0):
        stays, ends, p = (weight if at < 2 else 1.0) * REWARDS[at, True] + after, REWARDS[at, False], GO[at]
        derivative[at] = prod(GO[:at]) * p * (1 - p) * (stays - ends)
        after = p * stays + (1 - p) * ends
    return derivative


def episode(play, nodes, tree):
    """Return a play as a trajectory of turns of one token."""
    turns = [
        Sampled(node, REWARDS[at, goes], bytes([at]), tokens=1, action=str(goes))
        for at, (goes, node) in enumerate(zip(play, nodes, strict=True))
    ]
    return path(*turns, tree=tree, success=play == PLAYS[-1])


@cache
def groups_of(form):
    """Return all groups as probability, plays and trajectories: three plays, or a tree of two candidates a turn."""
    if form == PLAY:
        chance = {play: prod(p if go else 1 - p for p, go in zip(GO, play, strict=False)) for play in PLAYS}
        every = [(prod(chance[play] for play in plays), plays) for plays in product(PLAYS, repeat=3)]
        return [
            (p, plays, [episode(play, range(1, len(play) + 1), number) for number, play in enumerate(plays)])
            for p, plays in every
        ]
    return [
        (p, [play for play, _ in leaves], [episode(play, nodes, 0) for play, nodes in leaves])
        for p, tree in trees(0)
        for leaves in [list(leaves_of(tree, (), (), count(1)))]
    ]


def trees(at):
    """Return all trees below a decision with their probabilities, each as two candidates with what is below them."""
    below = trees(at + 1) if at < 2 else [(1.0, ())]
    ways = [(1 - GO[at], (False, ())), *((GO[at] * p, (True, tree)) for p, tree in below)]
    return [(p * q, (first, second)) for (p, first), (q, second) in product(ways, repeat=2)]


def leaves_of(tree, play, nodes, numbers):
    for goes, below in tree:
        here = ((*play, goes), (*nodes, next(numbers)))
        yield from leaves_of(below, *here, numbers) if below else [here]


@cache
def batch_of_all(form):
    return with_critic(batch_of(*[trajectories for *_, trajectories in groups_of(form)]))


def with_critic(batch):
    """Return a batch with the values of a critic that is wrong everywhere."""
    return replace(batch, values=0.7 - 0.4 * batch.turn.clamp(min=0))


def gradient(text, form=PLAY):
    """Return the expected gradient by the logit of each decision; all trajectories of a group have the same weight."""
    estimator = choose_estimator(text, critic=text.startswith(CRITIC)).estimator
    if text.startswith(WHITENED) and form == PLAY:
        batches = [with_critic(batch_of(trajectories)) for *_, trajectories in groups_of(form)]
    else:
        batches = [batch_of_all(form)]
    values = iter([value for batch in batches for value in estimator(batch)[batch.sampled].tolist()])
    total = [0.0, 0.0, 0.0]
    for p, plays, _ in groups_of(form):
        for play in plays:
            for at, goes in enumerate(play):
                # The derivative of the log-probability of the answer by the logit of going on.
                total[at] += p / len(plays) * next(values) * (goes - GO[at])
    return total


def row(text, form, cause):
    """Return a line of the table: the expected gradient over that of the expected return, and what follows."""
    shares = [ours / true for ours, true in zip(gradient(text, form), true_gradient(), strict=True)]
    scaled = max(shares) - min(shares) < 1e-4
    assert scaled == (cause in ("", MEAN)), f"{text} on {form}: {shares}"
    verdict = "biased: " if not scaled else "unbiased" if abs(shares[0] - 1) < 1e-4 else "unbiased, times a constant: "
    return f"| `{text}` | {form} | {', '.join(f'{share:.2f}' for share in shares)} | {verdict}{cause} |"


def test_the_table_of_the_document_is_that_of_the_enumeration():
    assert {text.partition("(")[0] for text, *_ in ROWS} == set(ESTIMATORS)
    lines = ["| estimator | batches of | share at each decision | expected gradient |", "|---|---|---|---|"]
    table = "\n".join([*lines, *(row(*given) for given in ROWS)])
    assert table in DOCUMENT.read_text(encoding="utf-8"), f"wanted in {DOCUMENT}:\n{table}"


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_weighted_rewards_of_turns_have_the_gradient_of_the_weighted_return(weight):
    assert gradient(f"turn_rloo(turn_weight={weight})") == pytest.approx(true_gradient(weight), abs=1e-6)
