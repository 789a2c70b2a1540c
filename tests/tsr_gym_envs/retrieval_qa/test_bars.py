"""The success of random play, worked out by hand over a page."""

from fractions import Fraction

import pytest

from tests.tsr_gym_envs.retrieval_qa.fakes import QUESTIONS, WordRetriever
from tsr_gym_envs.retrieval_qa.plan import random_success
from tsr_gym_envs.retrieval_qa.protocol import PROTOCOLS
from tsr_gym_envs.retrieval_qa.searches import Searches

WIRE = PROTOCOLS["search-r1"]
TOWN, MAYOR = "<search>Velden</search>", "<answer>Otto Brand</answer>"


def turns(titles):
    """Before anything was read one can search for the town or say yes; then also answer with the mayor."""
    return (TOWN, "<answer>yes</answer>", MAYOR) if titles else (TOWN, "<answer>yes</answer>")


@pytest.mark.parametrize(
    ("num_turns", "wanted"),
    [
        # In the last turn nothing is searched, and yes is wrong.
        (1, Fraction(0)),
        # A search in one of two, then the mayor in one of three.
        (2, Fraction(1, 2) * Fraction(1, 3)),
        # After that search, the mayor at once, or another search and then the mayor.
        (3, Fraction(1, 2) * (Fraction(1, 3) + Fraction(1, 3) * Fraction(1, 3))),
    ],
)
def test_random_success_is_the_mean_over_turns(num_turns, wanted):
    searches = Searches(WordRetriever(), WIRE, 1, 16)
    assert random_success(QUESTIONS[0], searches, turns, WIRE, num_turns) == pytest.approx(float(wanted))
