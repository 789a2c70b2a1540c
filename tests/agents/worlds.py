"""Small worlds and policies that follow a script, for trees that can be worked out by hand."""

from itertools import product
from typing import NamedTuple

import gymnasium as gym
import numpy as np

import tsr_gym  # noqa: F401 (registers the worlds)
from tsr_gym import Candidate, Limits, Node, Step, TextEnv, Tree
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.codec import encode
from tsr_gym.wrappers import AnswerFormat, FrozenLakeScore, TreeSearchWrapper
from tsr_gym.wrappers.score_wrapper import ScoreWrapper


class Word(NamedTuple):
    text: str


class Letters(TextEnv[Word]):
    """A deterministic environment: each turn adds a letter to a word; letters have prices, and some end the word.

    Args:
        pays: The reward of every letter; the key "ab" is that of a b after the word a.
        ends: Letters that end the word, which is success.
        turns: Largest number of letters.
        dead: Words that are marked as dead ends.
        bag: Whether the order of the letters is ignored, so that ba is the word ab.
    """

    draws_noise = False

    def __init__(self, pays, ends="", turns=None, dead=(), bag=False):
        super().__init__(
            (tuple(sorted(pays.items())), ends, tuple(dead), bag), limits=Limits(max_turns=turns), separator=None
        )
        self.pays, self.ends, self.dead, self.bag = pays, ends, dead, bag

    def initial(self, rng, options):
        return Word("")

    def transition(self, state, action, rng):
        text = state.text + action
        pay = self.pays.get(text, self.pays[action])
        after = Word("".join(sorted(text)) if self.bag else text)
        info = {"dead_end": "marked"} if after.text in self.dead else {}
        return Step(after, pay, action in self.ends, info)

    def observe(self, state):
        return state.text

    def state_key(self, state):
        return encode(tuple(state))

    def is_success(self, state):
        return state.text[-1:] != "" and state.text[-1:] in self.ends


class LastLetter(ScoreWrapper):
    """Score a word by its last letter's price: a score of states, like FrozenLake's proxy."""

    score_of = "state"

    def score(self, before, action, after, reward):
        return reward


class Script:
    """A policy that answers at each word with the letters of a table, in order, and counts its calls.

    Args:
        answers: The letters for each word.
        logprobs: A list of log-probabilities per letter; empty for letters without.
    """

    def __init__(self, answers, logprobs=None):
        self.answers = answers
        self.logprobs = logprobs or {}
        self.calls = 0

    def __call__(self, requests):
        self.calls += 1
        return [self._answer(tree, wish) for tree, wish in requests]

    def _answer(self, tree, wish):
        first = len(tree.children(wish.node))
        letters = self.answers[tree.nodes[wish.node].observation][first : first + wish.samples]
        assert len(letters) == wish.samples, f"the script ends at {tree.nodes[wish.node].observation!r}"
        return [Candidate(letter, logprobs=tuple(self.logprobs.get(letter, ()))) for letter in letters]


def cycle(letters):
    """Return a policy that answers with some letters in turn at every node, forever."""

    def policy(requests):
        return [
            [
                Candidate(letters[number % len(letters)])
                for number in range(len(tree.children(wish.node)), len(tree.children(wish.node)) + wish.samples)
            ]
            for tree, wish in requests
        ]

    return policy


def priced(seed, turns=4, alphabet="abc"):
    """Return random prices for every word, and the return of every word of full length."""
    rng = np.random.default_rng(seed)
    words = ["".join(word) for length in range(1, turns + 1) for word in product(alphabet, repeat=length)]
    pays = {word: float(price) for word, price in zip(words, rng.normal(size=len(words)), strict=True)}
    full = [word for word in words if len(word) == turns]
    return pays, {word: sum(pays[word[:end]] for end in range(1, turns + 1)) for word in full}


def letters(pays, ends="", turns=None, *, seed=0, score_of="turn", dead=(), bag=False):
    """Return an environment of letters, ready for a search."""
    env = Letters(pays, ends, turns, dead, bag)
    env = TreeSearchWrapper(LastLetter(env) if score_of == "state" else env)
    env.reset(seed=seed)
    return env


def grow_bare(strategy, child, *, seed=0):
    """Grow a tree without an environment and return it with the strategy's result: fast, for laws about many trees.

    ``child(tree, parent, number)`` returns the relevant fields of a new node; the others are empty.
    """
    tree = Tree(seed=seed)
    empty = {"observation": "", "reward": 0.0, "score": 0.0, "terminated": False, "truncated": False}
    empty |= {"candidate": Candidate(""), "info": {}, "snapshot": None}
    tree.add(Node(parent=None, depth=0, **empty))
    plan = strategy(tree)
    while True:
        try:
            wishes = next(plan)
        except StopIteration as end:
            return tree, end.value
        for node, samples in wishes:
            for _ in range(samples):
                fields = empty | child(tree, node, len(tree.children(node)))
                tree.add(Node(parent=node, depth=tree.nodes[node].depth + 1, **fields))


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


PUSHER = RandomPolicy(("Up", "Down", "Left", "Right"), max_actions=5)
WALKER = RandomPolicy(("Left", "Down", "Right", "Up"), max_actions=2)


def words_of(tree):
    """Return the text of the path to every node."""
    return ["".join(tree.nodes[step].candidate.text for step in tree.path(index)) for index in range(len(tree.nodes))]


def picture(tree):
    """Return all nodes of a tree, snapshots included, in a form that can be compared."""
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


def watch(strategy, asked, seen=lambda tree, wishes: [wish.node for wish in wishes]):
    """Return a strategy that works like another and extends a list by what is seen of its wishes, the nodes."""

    def watched(tree):
        plan = strategy(tree)
        while True:
            try:
                wishes = next(plan)
            except StopIteration as end:
                return end.value
            asked.extend(seen(tree, wishes))
            yield wishes

    return watched
