"""Outline: a tree as indented lines, for people."""

from collections.abc import Callable, Sequence

from tsr_gym.node import Node

MAX_TEXT = 60


def outline(nodes: Sequence[Node], children: Callable[[int], Sequence[int]], root: int, limit: int) -> str:
    """Return a line per node below a root, each indented below its parent, children in order.

    Args:
        nodes: Of the whole tree.
        children: A node's, by index.
        root: Where to begin.
        limit: Most lines; a last one then says how many nodes are not shown.
    """
    if not nodes:
        return "no nodes"
    lines: list[str] = []
    open_nodes = [root]
    top = nodes[root].depth
    while open_nodes and len(lines) < limit:
        index = open_nodes.pop()
        node = nodes[index]
        lines.append("  " * (node.depth - top) + f"{index}: {_words(node)}")
        open_nodes += reversed(children(index))
    if open_nodes:
        lines.append(f"... cut after {limit} nodes")
    return "\n".join(lines)


def said_at(node: Node) -> str:
    """Return what was said to reach a node, of the first one what it shows, in one short line."""
    said = node.observation if node.parent is None else node.candidate.text
    text = " ".join(str(said).split())
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def ending(node: Node) -> str:
    """Return how an episode ended at a node, in words; nothing where it goes on."""
    return "solved" if node.solved else "ended" if node.terminated else "cut by a limit" if node.truncated else ""


def _words(node: Node) -> str:
    words = [said_at(node)]
    if node.parent is not None:
        words.append(f"reward {node.reward:g}")
        words += [f"score {node.score:g}"] if node.score != node.reward else []
    return ", ".join(filter(None, [*words, ending(node)]))
