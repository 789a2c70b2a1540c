"""Small trees of letters for starts, and the words that moments stand at."""

from tests.agents.worlds import letters
from tsr_gym import Candidate


def words(*turns, turns_at_most=4, dead=(), ends="x"):
    """Return a tree that holds some words, node by node: parent's index and letters. A word that ends in x succeeds."""
    env = letters({"a": 0.0, "b": 0.0, "x": 1.0}, ends=ends, turns=turns_at_most, dead=dead)
    for parent, said in turns:
        env.expand(parent, [Candidate(letter) for letter in said])
    return env.tree


def seen(moments):
    """Return the words at which moments stand."""
    return sorted(moment.observation for moment in moments)


def moment_of(starts, word):
    """Return the moment of a bank at a word."""
    (found,) = [moment for moment in starts.bank if moment.observation == word]
    return found
