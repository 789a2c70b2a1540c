"""Export: saved trees as JSON lines or Parquet for other trainers and tools; torch-free but for step values.

The column ``tree`` names the file of a record's tree. Token ids are exactly the sampled ones. The other columns are the
fields of the record: `Pair` for ``preferences``, `StepValue` for ``step-values``, `Row` for ``trajectories``,
`NodeRecord` for ``nodes`` and `Chat` for ``chat``.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

from tsr_gym.agents.config import RUN_FILE
from tsr_gym.agents.episodes.trajectory import harvest
from tsr_gym.agents.policies.prompts import PROMPTS
from tsr_gym.errors import ConfigError, InvalidTree, TsrGymError
from tsr_gym.keywords import choose, parse_call
from tsr_gym.optional import require
from tsr_gym.records import write_records
from tsr_gym.text_env import TextEnv
from tsr_gym.tree import Tree

KINDS = {
    "preferences": "tsr_gym.agents.bridges.labels:sibling_pairs",
    "step-values": "tsr_gym.agents.bridges.labels:tree_step_values",
    "trajectories": "tsr_gym.agents.bridges.rows:tree_rows",
    "nodes": "tsr_gym.agents.bridges.nodes:tree_nodes",
    "chat": "tsr_gym.agents.bridges.export:tree_chats",
}
# These need no tokens: they can be made from episodes of people and of scripted players.
OF_TEXTS = ("nodes", "chat")


class Exported(NamedTuple):
    """The size of an export.

    Attributes:
        trees: Trees that were read.
        records: Records that were written.
    """

    trees: int
    records: int


def export(
    sources: Sequence[Path],
    out: Path,
    *,
    kind: str = "preferences",
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Exported:
    """Write the records of some trees, and return their number; an older file is replaced only when all is written.

    Args:
        sources: Folders of runs, folders of trees, or files of trees.
        out: The file: Parquet where its name ends in .parquet, else JSON lines.
        kind: One of `KINDS`, with keywords of its function as in ``"preferences(pairing='all')"``, or
            ``package.module:name`` of your own function from a tree to NamedTuples.
        watch: Called with the number of trees that were read and the total.

    Raises:
        ConfigError: There is no such kind or keyword, or there are no trees.
        InvalidTree: A tree is damaged, or has no tokens, which all kinds but `OF_TEXTS` need, or no tree has a record.
        MissingExtra: The kind, or Parquet, needs a package that is not installed.
        OSError: A file cannot be read or written.
    """
    records_of = _records_of(kind)
    files = [file for source in sources for file in tree_files(source)]
    if not files:
        raise ConfigError("wanted the folder of at least one run, or a file of a tree")
    read = Tree.load if parse_call(kind, what="kind of records").name in OF_TEXTS else _with_tokens
    records: list[tuple[str, Any]] = []
    for number, file in enumerate(files, start=1):
        records += [(str(file), record) for record in records_of(read(file))]
        watch(number, len(files))
    if not records:
        raise InvalidTree(f"the {len(files)} trees hold no {kind}: nothing was written")
    write_records(out, [{"tree": tree, **record._asdict()} for tree, record in records], like=type(records[0][1]))
    return Exported(len(files), len(records))


def tree_files(source: Path) -> Iterator[Path]:
    """Yield the files of trees at a path: the file itself, the files in a folder, or those in a run's ``trees``.

    Raises:
        ConfigError: There is no such file, or no tree in the folder.
    """
    if not source.is_dir():
        if not source.is_file():
            raise ConfigError(f"{source}: wanted the folder of a run or a file of a tree, found nothing")
        yield source
        return
    folder = source / "trees" if (source / RUN_FILE).is_file() else source
    files = sorted(folder.rglob("*.jsonl"))
    if not files:
        raise ConfigError(f"{folder}: found no trees; a run saves some at every checkpoint (--save-trees)")
    yield from files


def _records_of(kind: str) -> Callable[[Tree], Sequence[Any]]:
    call = parse_call(kind, what="kind of records")
    if call.name not in KINDS and ":" not in call.name:
        raise ConfigError(f"wanted kind of {', '.join(KINDS)} or package.module:name, got {kind!r}")
    if call.name == "step-values":
        require("torch", "agents")
    text = str(call._replace(name=KINDS.get(call.name, call.name)))
    return choose(text, home=__name__, what="kind of records")


def _with_tokens(file: Path) -> Tree:
    tree = Tree.load(file)
    if len(tree.nodes) > 1 and not any(node.candidate.token_ids for node in tree.nodes):
        raise InvalidTree(f"{file}: its turns have no token ids: wanted a tree that a language model grew")
    return tree


class Chat(NamedTuple):
    """An episode as messages.

    Attributes:
        task: Seed of the tree.
        messages: Each with its ``role`` (system, user, assistant) and ``content``; the last one is an answer.
        total_reward: Sum of the rewards.
        success: Whether it solved the task.
    """

    task: int
    messages: tuple[dict[str, str], ...]
    total_reward: float
    success: bool


def tree_chats(
    tree: Tree, *, prompt: str = "paper", instructions: str | None = None, keep: int = 1, successes: bool = True
) -> list[Chat]:
    """Return the best episodes of a tree as messages, for `tsr train --warm-start` and for other trainers.

    Args:
        tree: A grown tree.
        prompt: Name of the prompt, which gives the words around observations.
        instructions: The rules of the game; None for those of the environment with its default settings.
        keep: Number of episodes, those that the search chose first.
        successes: Whether to take only episodes that solved their task.

    Raises:
        ConfigError: There is no such prompt, or the environment cannot be made to read its rules.
    """
    if prompt not in PROMPTS:
        raise ConfigError(f"wanted a prompt of {sorted(PROMPTS)}, got {prompt!r}")
    rules = _instructions(str(tree.about.get("env"))) if instructions is None else instructions
    words = PROMPTS[prompt](rules)
    system = [{"role": "system", "content": words.system}] if words.system else []
    chats = []
    for trajectory in harvest(tree, keep):
        if (successes and not trajectory.success) or not trajectory.turns:
            continue
        messages = list(system)
        for before, after in pairwise(tree.path(trajectory.turns[-1].node)):
            messages.append({"role": "user", "content": words.turn(tree.nodes[before])})
            messages.append({"role": "assistant", "content": _answer_text(tree, after, think=words.think)})
        chats.append(Chat(tree.seed, tuple(messages), trajectory.total_reward, trajectory.success))
    return chats


def _answer_text(tree: Tree, node: int, *, think: bool) -> str:
    """Return the answer of a turn in a model's form: people play bare actions, which a model writes into tags."""
    text = str(tree.nodes[node].candidate.text)
    if tree.about.get("player") != "person" or text.startswith("<"):
        return text
    return f"{'<think></think>' if think else ''}<answer>{text}</answer>"


def _instructions(env: str) -> str:
    """Return the rules of an environment with its default settings."""
    try:
        made = gym.make(env)
    except (gym.error.Error, TsrGymError, TypeError) as error:
        raise ConfigError(f"{env} cannot be made to read its rules ({error}): give instructions='...'") from error
    base = made.unwrapped
    made.close()
    return base.instructions if isinstance(base, TextEnv) else ""
