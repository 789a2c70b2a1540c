"""`tsr tree`: saved trees in the terminal, with scores, rewards, and the nodes that a search kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import rich.tree
import tyro
from rich.console import Console
from rich.text import Text

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import Shown, progress_bar, show_tables, with_json, write_json
from tsr_gym.errors import ConfigError
from tsr_gym.tree import Tree, ending, turn_text


@dataclass(frozen=True, slots=True)
class TreeArgs:
    """Print a saved tree, or a table of all trees of a run with the numbers that --number takes."""

    source: Annotated[Path, tyro.conf.Positional]
    """File of a tree, folder of trees, or folder of a run."""
    number: int | None = None
    """Number of a tree in a folder, from 0."""
    below: int = 0
    """Node at the top of the print."""
    depth: int | None = None
    """Turns below it to show; all by default."""
    limit: int = 500
    """Most nodes to show, or most trees in a table."""
    kept: bool = False
    """Show only the nodes that were played or that the search chose."""
    json: Path | None = None
    """File for the shown nodes as JSON; without a file they are printed."""


def main(args: list[str]) -> int:
    """Print a tree, or the table of all trees."""
    options = read_arguments(TreeArgs, with_json(args), prog="tsr tree")
    from tsr_gym.agents.bridges.export import tree_files

    files = list(tree_files(options.source))
    if len(files) > 1 and options.number is None:
        if options.kept or options.below or options.depth is not None:
            raise ConfigError(
                f"{options.source} holds {len(files)} trees: wanted --number with --kept, --below or --depth"
            )
        _show_all(files, options)
        return 0
    number = options.number or 0
    if not 0 <= number < len(files):
        raise ConfigError(f"{options.source}: wanted --number from 0 to {len(files) - 1}, got {number}")
    tree = Tree.load(files[number])
    if not tree.nodes:
        raise ConfigError(f"{files[number]}: the tree has no nodes")
    if not 0 <= options.below < len(tree.nodes):
        raise ConfigError(f"{files[number]}: wanted --below from 0 to {len(tree.nodes) - 1}, got {options.below}")
    nodes, kept = _wanted(tree, options), kept_nodes(tree)
    rows = [_as_json(tree, node, kept) for node in nodes]
    if write_json({"file": str(files[number]), **_facts(tree), "tree": rows}, options.json):
        _show(files[number], tree, nodes)
    return 0


def kept_nodes(tree: Tree) -> set[int]:
    """Return the nodes on the paths to the played and the chosen nodes; all nodes if there are none of these."""
    ends = [*tree.played[1:], *tree.chosen]
    return {node for end in ends for node in tree.path(end)} or set(range(len(tree.nodes)))


def _wanted(tree: Tree, options: TreeArgs) -> list[int]:
    """Return the nodes to show, parents before children."""
    kept, top = kept_nodes(tree), tree.nodes[options.below].depth
    most = None if options.depth is None else top + options.depth
    return [
        node
        for node in tree.below(options.below)
        if (most is None or tree.nodes[node].depth <= most) and (node in kept or not options.kept)
    ][: max(options.limit, 1)]


def _show(file: Path, tree: Tree, nodes: Sequence[int]) -> None:
    console, kept = Console(highlight=False), kept_nodes(tree)
    console.print(Text(f"{file}: {_heading(tree)}"), soft_wrap=True)
    branches: dict[int, rich.tree.Tree] = {}
    for node in nodes:
        label = _label(tree, node, node in kept)
        parent = tree.nodes[node].parent
        branches[node] = branches[parent].add(label) if parent in branches else rich.tree.Tree(label)
    # A piped tree keeps one line per node.
    wide = Console(highlight=False, width=None if console.is_terminal else 180)
    wide.print(branches[nodes[0]])
    hidden = len(tree.nodes) - len(nodes)
    if hidden:
        console.print(f"{hidden} nodes are not shown: see --below, --depth, --limit and --kept")


def _label(tree: Tree, index: int, kept: bool) -> Text:
    node = tree.nodes[index]
    marks = ["played"] if index in tree.played[1:] else []
    marks += ["chosen"] if index in tree.chosen else []
    marks += [] if kept else ["pruned"]
    marks += [f"dead end: {node.info['dead_end']}"] if node.info.get("dead_end") else []
    marks += ["not understood"] if node.info.get("action_is_valid") is False else []
    marks += [ending(node)] if ending(node) else []
    numbers = "" if node.parent is None else f"  reward {node.reward:g}  score {node.score:g}"
    label = Text(f"{index}: {turn_text(node)}", style="" if kept else "dim", overflow="ellipsis", no_wrap=True)
    label.append(numbers, style="cyan")
    if marks:
        label.append(f"  {', '.join(marks)}", style="green" if node.solved else "magenta")
    return label


def _heading(tree: Tree) -> str:
    facts = _facts(tree)
    words = [f"{facts['env']}" if facts["env"] else "a tree", f"seed {facts['seed']}", f"{facts['nodes']} nodes"]
    words += [f"{facts['solved']} solved", f"best return {facts['best_return']:g}"]
    return ", ".join(words + (["clairvoyant"] if tree.about.get("clairvoyant") else []))


def _facts(tree: Tree) -> dict[str, Any]:
    leaves = tree.leaves() if tree.nodes else []
    return {
        "env": tree.about.get("env"),
        "seed": tree.seed,
        "nodes": len(tree.nodes),
        "depth": max((node.depth for node in tree.nodes), default=0),
        "solved": sum(node.solved for node in tree.nodes),
        "best_return": max((tree.total(leaf, "reward") for leaf in leaves), default=0.0),
        "chosen": list(tree.chosen),
        "played": list(tree.played),
    }


def _as_json(tree: Tree, index: int, kept: set[int]) -> dict[str, Any]:
    node = tree.nodes[index]
    return {
        "node": index,
        "parent": node.parent,
        "depth": node.depth,
        "text": node.candidate.text,
        "reward": node.reward,
        "score": node.score,
        "return": tree.total(index, "reward"),
        "kept": index in kept,
        "end": ending(node),
    }


def _show_all(files: Sequence[Path], options: TreeArgs) -> None:
    shown = files[: max(options.limit, 1)]
    facts = []
    with progress_bar() as watch:
        for number, file in enumerate(shown):
            facts.append({"number": number, "file": str(file), **_facts(Tree.load(file))})
            watch("trees", number + 1, len(shown))
    if not write_json(facts, options.json):
        return
    columns = ("number", "file", "seed", "nodes", "depth", "solved", "best_return")
    rows = [[f"{row[name]:g}" if name == "best_return" else str(row[name]) for name in columns] for row in facts]
    left = f"; {len(files) - len(shown)} more are not shown: see --limit" if len(shown) < len(files) else ""
    show_tables([Shown(str(options.source), columns, rows, f"tsr tree ... --number N prints one{left}")])
