"""Small worlds and policies that follow a script, for trees that can be worked out by hand."""

from typing import NamedTuple

import gymnasium as gym

import tsr_gym  # noqa: F401 (registers the worlds)
from tsr_gym import Candidate, Limits, Step, TextEnv
from tsr_gym.agents.random_policy import RandomPolicy
from tsr_gym.codec import encode
from tsr_gym.wrappers import AnswerFormat, FrozenLakeScore, TreeSearchWrapper
from tsr_gym.wrappers.score_wrapper import ScoreWrapper


class Word(NamedTuple):
    text: str


class Letters(TextEnv[Word]):
    """Write a word, a letter a turn; each letter has its price, and some end the word. Nothing is left to chance."""

    draws_noise = False

    def __init__(self, pays, ends="", turns=None):
        super().__init__((tuple(sorted(pays.items())), ends), limits=Limits(max_turns=turns), separator=None)
        self.pays, self.ends = pays, ends

    def initial(self, rng, options):
        return Word("")

    def transition(self, state, action, rng):
        after = Word(state.text + action)
        return Step(after, self.pays[action], action in self.ends, {})

    def observe(self, state):
        return state.text

    def state_key(self, state):
        return encode(tuple(state))

    def is_success(self, state):
        return state.text[-1:] != "" and state.text[-1:] in self.ends


class LastLetter(ScoreWrapper[Word]):
    """Rate a word by its last letter's price: a score of states, as FrozenLake's proxy is."""

    score_of = "state"

    def score(self, before, action, after, reward):
        return reward


class Script:
    """Say at each word the letters that a table has for it, in order, and count the calls."""

    def __init__(self, says):
        self.says = says
        self.calls = 0

    def __call__(self, requests):
        self.calls += 1
        return [self._answer(tree, wish) for tree, wish in requests]

    def _answer(self, tree, wish):
        first = len(tree.children(wish.node))
        letters = self.says[tree.nodes[wish.node].observation][first : first + wish.samples]
        assert len(letters) == wish.samples, f"the script ends at {tree.nodes[wish.node].observation!r}"
        return [Candidate(letter) for letter in letters]


def letters(pays, ends="", turns=None, *, seed=0, score_of="turn"):
    """Return an environment of letters, ready for a search."""
    env = Letters(pays, ends, turns)
    env = TreeSearchWrapper(LastLetter(env) if score_of == "state" else env)
    env.reset(seed=seed)
    return env


def lake(seed=0, *, noise="fresh", score=True, **settings):
    """Return a slippery lake in the full stack, at an instance."""
    env = AnswerFormat(gym.make("tsr/FrozenLake-v0", **settings))
    env = TreeSearchWrapper(FrozenLakeScore(env) if score else env, noise=noise)
    env.reset(seed=seed)
    return env


def rooms(seed=0, **settings):
    """Return Sokoban in the full stack, at an instance."""
    env = TreeSearchWrapper(AnswerFormat(gym.make("tsr/Sokoban-v0", **settings)))
    env.reset(seed=seed)
    return env


WALKER = RandomPolicy(("Left", "Down", "Right", "Up"), max_actions=2)


def words_of(tree):
    """Return what was said on the way to every node."""
    return ["".join(tree.nodes[step].candidate.text for step in tree.path(index)) for index in range(len(tree.nodes))]


def picture(tree):
    """Return everything that a tree is, snapshots included, in a form that can be compared."""
    return [
        (
            node.parent,
            node.depth,
            node.candidate,
            node.observation,
            node.reward,
            node.score,
            node.terminated,
            node.truncated,
            None if node.snapshot is None else node.snapshot.digest,
        )
        for node in tree.nodes
    ]
