"""No passage of the package is written twice: statements of the same shape, six lines or more, are one function.

Two runs of statements have the same shape where they differ only in names, attributes and constants. Docstrings have
no shape, and neither have the lines of a constructor that keep an argument (``self.x = x``).
"""

import ast
from collections import defaultdict
from itertools import accumulate
from textwrap import indent

import pytest

from tests.test_house import SOURCES, TREES

ROOMS = ("tsr_gym", "tsr_gym_envs", "wrappers", "agents")
MIN_LINES = 6
# Files that share a shape all the same, with the reason.
EXCEPTIONS = [
    # One Hungarian algorithm: over compiled tables, a box at a time, and over lists of any costs, without numba.
    {"tsr_gym_envs/sokoban/tables.py", "tsr_gym_envs/sokoban/score.py"}
]


def shape_of(node):
    """Return a piece of syntax without its names, attributes and constants."""
    if isinstance(node, list):
        return tuple(shape_of(part) for part in node)
    if isinstance(node, ast.Constant):
        return "constant"
    if isinstance(node, ast.AST):
        return (type(node).__name__, *(shape_of(part) for _, part in ast.iter_fields(node)))
    return None if node is None else "name"


def is_bare(statement):
    """Return whether a statement is a docstring or only keeps an argument."""
    match statement:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(targets=[ast.Attribute(value=ast.Name("self"))], value=ast.Name()):
            return True
    return False


def blocks_of(tree):
    """Yield every list of statements of a function, without its bare ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            continue
        for _, field in ast.iter_fields(node):
            if isinstance(field, list) and field and isinstance(field[0], ast.stmt):
                yield [statement for statement in field if not is_bare(statement)]


def runs_of(block):
    """Yield the shortest run from each statement on that is long enough, as (shape, first line, last line)."""
    shapes = [shape_of(statement) for statement in block]
    lengths = [statement.end_lineno - statement.lineno + 1 for statement in block]
    for first in range(len(block)):
        for last, lines in enumerate(accumulate(lengths[first:]), first):
            if lines >= MIN_LINES:
                yield tuple(shapes[first : last + 1]), block[first].lineno, block[last].end_lineno
                break


def repeats(trees):
    """Return the places of every shape that stands in several, each as (file, first line, last line)."""
    places = defaultdict(list)
    for name, tree in trees.items():
        for block in blocks_of(tree):
            for shape, first, last in runs_of(block):
                places[shape].append((name, first, last))
    return [found for found in places.values() if len(found) > 1]


def test_no_passage_of_the_package_is_written_twice():
    trees = {name: TREES[name] for name, (room, _) in SOURCES.items() if room in ROOMS}
    found = [places for places in repeats(trees) if {name for name, *_ in places} not in EXCEPTIONS]
    assert found == [], "\n".join(" = ".join(f"{name}:{a}-{b}" for name, a, b in places) for places in found)


PASSAGE = "total = 0\nfor number in numbers:\n  if number > 3:\n    total += number\n  else:\n    total -= 1\n"


@pytest.mark.parametrize(
    ("other", "times"),
    [
        (PASSAGE.replace("total", "sum").replace("3", "7"), 1),
        (PASSAGE.replace("-= 1", "-= number + 1"), 0),
        (PASSAGE.replace("else:\n    total -= 1\n", ""), 0),
    ],
    ids=["other names and constants", "another expression", "shorter"],
)
def test_passages_are_the_same_whatever_their_names(other, times):
    bodies = ["if numbers:\n" + indent(text, "  ") for text in (PASSAGE, other)]
    trees = {name: ast.parse(body) for name, body in zip("ab", bodies, strict=True)}
    assert len(repeats(trees)) == times
