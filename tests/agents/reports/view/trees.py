"""Trees for tests of the viewer: one worked by hand, one of Sokoban, and one with texts that attack the page."""

from functools import partial
from typing import NamedTuple

import gymnasium as gym

from tsr_gym import Limits, Step, TextEnv
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies.beam import beam
from tsr_gym.tree import Candidate, Node, Tree
from tsr_gym.wrappers import AnswerFormat, TreeSearchWrapper


class Stock(NamedTuple):
    left: int


class Shelf(TextEnv[Stock]):
    """A shop of one shelf: its page has buttons, its compact form is a word."""

    draws_noise = False
    model_forms = frozenset({"observation_mode"})

    def __init__(self, observation_mode="text", render_mode=None):
        super().__init__((observation_mode,), limits=Limits(max_turns=2), render_mode=render_mode)
        self.observation_mode = observation_mode

    def initial(self, rng, options):
        return Stock(3)

    def transition(self, state, action, rng):
        return Step(Stock(state.left - 1), 1.0, False, {})

    def observe(self, state):
        if self.observation_mode == "compact":
            return f"shelf {state.left}"
        return f"Instruction: [SEP] Buy <b>two</b> [SEP] Buy Now [SEP] {state.left} left"

    def state_key(self, state):
        return bytes([state.left])

    def is_success(self, state):
        return False

    def legal_actions(self, state):
        return ("click[buy now]",)

    def buttons(self, state):
        return ("buy now",)


gym.register("view/Shelf-v0", Shelf)

EVIL = "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">&amp;\u2028'"


def node(parent, depth, text="", *, reward=0.0, score=0.0, end="", info=None, shown="a room", **more):
    """Return a node; `end` is the end of the episode there: solved, failed, cut, or empty for none."""
    facts = {"success": end == "solved", **(info or {})}
    return Node(
        parent,
        depth,
        text if isinstance(text, Candidate) else Candidate(text),
        shown,
        reward,
        score,
        end in ("solved", "failed"),
        end == "cut",
        facts,
        None,
        **more,
    )


def small_tree():
    """A tree of two turns: 1 and 2 below the first node, 3 and 4 below 1, 5 below 2; the search chose 3."""
    tree = Tree(seed=7, about={"env": "mine/Env-v0"})
    for made in (
        node(None, 0),
        node(0, 1, "left", score=2.0),
        node(0, 1, "right", reward=0.5, score=1.0),
        node(1, 2, "up", reward=1.0, score=1.0, end="solved"),
        node(1, 2, "down", end="failed"),
        node(2, 2, "up", score=0.2),
    ):
        tree.add(made)
    tree.choose([3])
    return tree


def evil_tree():
    """A tree in which every text attacks the page."""
    tree = Tree(seed=1, about={"env": EVIL, EVIL: EVIL})
    tree.add(node(None, 0, shown=EVIL))
    tree.add(node(0, 1, EVIL, shown=EVIL, end="failed", info={EVIL: EVIL, "golden_answers": ("<img", "(")}))
    tree.add(node(0, 1, EVIL, shown=f"Instruction: [SEP] {EVIL} [SEP] {EVIL}", info={"dead_end": EVIL}))
    tree.add(node(0, 1, EVIL, shown=f'<information>Doc 1(Title: "{EVIL}") {EVIL}</information>'))
    return tree


def long_tree(size=2000, branching=4):
    """A tree of many nodes: each but the last has a few below it."""
    tree = Tree(seed=3, about={"env": "mine/Env-v0"})
    tree.add(node(None, 0))
    for index in range(1, size):
        parent = (index - 1) // branching
        tree.add(node(parent, tree.nodes[parent].depth + 1, f"turn {index}", reward=0.1, score=index % 7))
    return tree


def sokoban_tree(seed=1, **settings):
    """A tree that a beam with random turns has grown over a room of Sokoban."""
    env = TreeSearchWrapper(AnswerFormat(gym.make("tsr/Sokoban-v0", **settings)))
    player = RandomPolicy(("Up", "Down", "Left", "Right"), max_actions=2)
    (tree,) = search([env], player, partial(beam, width=2, branching=3), seeds=[seed])
    return tree


def shelf_tree():
    """A tree over a shop that its player read in a compact form."""
    env = TreeSearchWrapper(AnswerFormat(gym.make("view/Shelf-v0", observation_mode="compact")))
    (tree,) = search([env], RandomPolicy(("Buy",), max_actions=1), partial(beam, width=1, branching=2), seeds=[1])
    return tree
