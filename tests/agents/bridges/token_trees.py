"""Trees with tokens, written down by hand; no torch."""

from tsr_gym.tree import Candidate, Node, Tree


def node(parent, depth, prompt, said, logprobs, text="", observation="", reward=0.0, terminated=False):
    candidate = Candidate(text, tuple(prompt), tuple(said), tuple(logprobs), 3 if said else None)
    return Node(parent, depth, candidate, observation, reward, 2 * reward, terminated, False, {"left": 2}, None)


def branching_tree():
    """Return two turns of full history: one first turn is continued twice, the other ends."""
    tree = Tree(seed=7, score_of="state", about={"noise": "fresh"})
    tree.add(node(None, 0, (), (), (), observation="start"))
    tree.add(node(0, 1, (11, 12), (1, 2), (-0.1, -0.2), "left", "wall"))
    tree.add(node(1, 2, (11, 12, 1, 2, 13, 14), (3,), (-0.30000000001,), "up", "hole", 0.0, True))
    tree.add(node(1, 2, (11, 12, 1, 2, 13, 14), (4, 5), (-0.4, -0.5), "down", "goal", 1.0, True))
    tree.add(node(0, 1, (11, 12), (6,), (-0.6,), "right", "hole", -1.0, True))
    tree.choose([3])
    return tree


def window_tree():
    """Return two turns whose prompts do not extend each other, and a node without tokens."""
    tree = Tree(seed=8, score_of="turn", about={})
    tree.add(node(None, 0, (), (), (), observation="start"))
    tree.add(node(0, 1, (11, 12), (1, 2), (-0.1, -0.2), "left", "wall"))
    tree.add(node(1, 2, (15, 16), (3,), (-0.3,), "up", "hole", 0.0, True))
    tree.add(node(1, 2, (), (), (), "down", "goal", 1.0, True))
    return tree
