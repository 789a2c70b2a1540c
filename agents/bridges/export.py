"""Export: saved trees as JSON lines or Parquet for other trainers and tools; torch-free but for step values.

The column ``tree`` names the file of a record's tree. Token ids are exactly the sampled ones. The other columns are the
fields of the record: `Pair` for ``preferences``, `StepValue` for ``step-values``, `Row` for ``trajectories``,
`NodeRecord` for ``nodes`` and `Chat` for ``chat``. Step values come from the backup of the estimator `tree_backup`, so
a process reward model learns the values that the estimator would have used.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from math import nan
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import gymnasium as gym

from tsr_gym.agents.config import RUN_FILE
from tsr_gym.agents.episodes.trajectory import Group, harvest, harvest_leaves
from tsr_gym.agents.lessons.filters import are_equal
from tsr_gym.agents.policies.prompts import PROMPTS
from tsr_gym.errors import ConfigError, InvalidTree, TsrGymError
from tsr_gym.keywords import choose, parse_call
from tsr_gym.optional import importing_only, require
from tsr_gym.records import write_records
from tsr_gym.registration import find_env
from tsr_gym.text_env import TextEnv
from tsr_gym.tree import Tree, files_in

Worth = Callable[[Tree], Sequence[float]]
Pairing = Literal["extremes", "against_best", "all"]


class Pair(NamedTuple):
    """Two candidates that answered the same prompt.

    Attributes:
        prompt_ids: Token ids of the prompt.
        chosen_ids: Token ids of the better candidate.
        rejected_ids: Token ids of the worse one.
        chosen_logprobs: Log-probability of each of `chosen_ids` when it was sampled.
        rejected_logprobs: Of each of `rejected_ids`.
        gap: Worth of the better candidate minus that of the worse one.
        node: Index of the node at which both were sampled.
        prompt: Text of `prompt_ids`, special tokens included, without those that the tokenizer puts before any text;
            empty, like the other two, where no tokenizer is known.
        chosen: Text of `chosen_ids`.
        rejected: Text of `rejected_ids`.
    """

    prompt_ids: tuple[int, ...]
    chosen_ids: tuple[int, ...]
    rejected_ids: tuple[int, ...]
    chosen_logprobs: tuple[float, ...]
    rejected_logprobs: tuple[float, ...]
    gap: float
    node: int
    prompt: str = ""
    chosen: str = ""
    rejected: str = ""


def merit(tree: Tree) -> list[float]:
    """Return the merit of each node, by which the search keeps or drops candidates; NaN for the root."""
    return [nan if node.parent is None else tree.merit(index) for index, node in enumerate(tree.nodes)]


def mean_return(tree: Tree) -> list[float]:
    """Return the mean return of the finished episodes through each node; NaN for a node without any.

    Returns of unfinished episodes are incomplete and cannot be compared, so branches that a search left have no worth.
    """
    sums, counts = [0.0] * len(tree.nodes), [0] * len(tree.nodes)
    for index in reversed(range(len(tree.nodes))):
        node = tree.nodes[index]
        if node.done:
            sums[index] += tree.total(index, "reward")
            counts[index] += 1
        if node.parent is not None:
            sums[node.parent] += sums[index]
            counts[node.parent] += counts[index]
    return [total / count if count else nan for total, count in zip(sums, counts, strict=True)]


WORTHS: dict[str, Worth] = {"merit": merit, "mean_return": mean_return}


def sibling_pairs(
    tree: Tree, *, worth: Worth | str = merit, margin: float = 0.0, pairing: Pairing = "extremes"
) -> list[Pair]:
    """Return the preferences among the candidates of each node of a tree.

    Only candidates with tokens that answered the same prompt are compared. A candidate that was sampled twice counts
    once, with the first of its nodes. Equal worth (`are_equal`) is no preference.

    Args:
        tree: A grown tree.
        worth: The measure that candidates are compared by: `merit` (the search's judgement) or `mean_return` (the ends
            of episodes), by name or as your own function.
        margin: The least difference in worth that is a preference.
        pairing: ``"extremes"``: the best with the worst. ``"against_best"``: the best with each other one. ``"all"``:
            each with each worse one.

    Raises:
        ConfigError: There is no such worth or pairing.
    """
    if pairing not in get_args(Pairing) or (isinstance(worth, str) and worth not in WORTHS):
        wanted = f"worth of {list(WORTHS)} and pairing of {list(get_args(Pairing))}"
        raise ConfigError(f"wanted {wanted}, got {worth!r} and {pairing!r}")
    values = (WORTHS[worth] if isinstance(worth, str) else worth)(tree)
    pairs = []
    for parent in range(len(tree.nodes)):
        for siblings in _comparable(tree, parent, values):
            for better, worse in _pairings(siblings, pairing):
                gap = values[better] - values[worse]
                if gap > margin and not are_equal((values[better], values[worse])):
                    pairs.append(_pair(tree, better, worse, gap))
    return pairs


def _comparable(tree: Tree, parent: int, values: Sequence[float]) -> Iterator[list[int]]:
    """Yield the children of a node that answered the same prompt, best first, equal tokens once."""
    different: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    for child in tree.children(parent):
        candidate = tree.nodes[child].candidate
        if candidate.token_ids and values[child] == values[child]:
            different.setdefault((candidate.prompt_ids, candidate.token_ids), child)
    for _, siblings in groupby(sorted(different), key=lambda both: both[0]):
        children = sorted(different[both] for both in siblings)
        yield sorted(children, key=lambda child: -values[child])


def _pairings(siblings: list[int], pairing: Pairing) -> list[tuple[int, int]]:
    if len(siblings) < 2:
        return []
    if pairing == "extremes":
        return [(siblings[0], siblings[-1])]
    if pairing == "against_best":
        return [(siblings[0], other) for other in siblings[1:]]
    return [(better, worse) for place, better in enumerate(siblings) for worse in siblings[place + 1 :]]


def _pair(tree: Tree, better: int, worse: int, gap: float) -> Pair:
    accepted, rejected = tree.nodes[better].candidate, tree.nodes[worse].candidate
    parent = tree.nodes[better].parent
    assert parent is not None
    ids, logprobs = (accepted.token_ids, rejected.token_ids), (accepted.logprobs, rejected.logprobs)
    return Pair(accepted.prompt_ids, *ids, *logprobs, gap, parent)


def preferences(
    tree: Tree, *, tokenizer: str = "", worth: Worth | str = merit, margin: float = 0.0, pairing: Pairing = "extremes"
) -> list[Pair]:
    """Return the pairs of `sibling_pairs` with their texts, the columns that trainers of preferences read.

    Args:
        tree: A grown tree.
        tokenizer: Folder with the ``tokenizer.json`` of the model that sampled the tokens; `export` fills in that of
            the newest checkpoint of the tree's run.
        worth: See `sibling_pairs`, as for the other two.
        margin: The least difference.
        pairing: Which candidates are compared.

    Raises:
        ConfigError: There is no such tokenizer, worth or pairing.
        MissingExtra: The package tokenizers is not installed.
    """
    pairs = sibling_pairs(tree, worth=worth, margin=margin, pairing=pairing)
    if not pairs:
        return []
    if not tokenizer:
        raise ConfigError("texts need a tokenizer: wanted preferences(tokenizer='FOLDER'), got no run with one")
    text = _decoder(tokenizer)
    return [
        pair._replace(
            prompt=text(pair.prompt_ids, True), chosen=text(pair.chosen_ids), rejected=text(pair.rejected_ids)
        )
        for pair in pairs
    ]


@lru_cache(maxsize=8)
def _decoder(folder: str) -> Callable[..., str]:
    require("tokenizers", "agents")
    from tokenizers import Tokenizer

    file = Path(folder) / "tokenizer.json"
    # The library raises plain exceptions for a damaged file.
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:
        raise ConfigError(f"{file}: wanted a tokenizer, got {error}") from error
    before = tokenizer.encode("").ids

    def decode(ids: Sequence[int], begins: bool = False) -> str:
        # A trainer's tokenizer adds these tokens again.
        skipped = len(before) if begins and list(ids[: len(before)]) == before else 0
        return str(tokenizer.decode(list(ids[skipped:]), skip_special_tokens=False))

    return decode


def _tokenizer_of(file: Path) -> dict[str, str]:
    """Return the setting that names the tokenizer of the run whose folder a tree is in; empty outside of runs."""
    run = next((folder for folder in file.resolve().parents if (folder / RUN_FILE).is_file()), None)
    saved = [] if run is None else sorted(run.glob("checkpoints/*/model/tokenizer.json"))
    return {"tokenizer": str(saved[-1].parent)} if saved else {}


class StepValue(NamedTuple):
    """A sampled turn and its value.

    Attributes:
        task: Seed of the task instance.
        prompt_ids: Token ids of the prompt.
        response_ids: Sampled token ids.
        value: Backed-up return of the trajectories through the turn.
        trajectories: Number of these trajectories.
        turn: Number of the turn, from 0.
    """

    task: int
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    value: float
    trajectories: int
    turn: int


def step_values(
    groups: Sequence[Group],
    *,
    backup: Literal["child_mean", "leaf_mean"] = "child_mean",
    unfinished: Literal["return", "score", "skip"] = "skip",
) -> list[StepValue]:
    """Return the value of every sampled turn, each node once (step labels as ReST-MCTS*, arXiv 2406.03816, uses them).

    Args:
        groups: Trajectories with nodes; of all leaves (`harvest_leaves`) to include rejected turns.
        backup: A node's value: the mean of its children's values, or the mean of its leaves' returns.
        unfinished: The value of a branch that the search left, see `Backup`. Unknown by default, because a label should
            be an observed result; turns with an unknown value are left out.
    """
    # Learning needs torch, pairs of siblings do not.
    from tsr_gym.agents.learning.advantages.turn_table import (
        Backup,
        back_up,
        check_nodes,
        first_entries,
        rewards_of,
        table_of,
    )
    from tsr_gym.agents.learning.batch import collate

    batch = collate(groups)
    tasks = [group.task for group in groups if any(trajectory.num_tokens for trajectory in group.trajectories)]
    table, rule = table_of(batch), Backup(kind=backup, unfinished=unfinished)
    check_nodes(table)
    worth = back_up(table, rewards_of(table, rule), rule)
    entries, starts, sharers = first_entries(table), table.starts, table.sharers
    labels = []
    for entry in entries[worth.known[entries]].tolist():
        row, start = int(table.row[starts[entry]]), int(table.column[starts[entry]])
        ids = batch.ids[row].tolist()
        labels.append(
            StepValue(
                task=tasks[int(table.group[entry])],
                prompt_ids=tuple(ids[:start]),
                response_ids=tuple(ids[start : start + int(table.tokens[entry])]),
                value=float(worth.values[entry]),
                trajectories=int(sharers[entry]),
                turn=int(table.turn[entry]),
            )
        )
    return labels


def tree_step_values(
    tree: Tree,
    *,
    backup: Literal["child_mean", "leaf_mean"] = "child_mean",
    unfinished: Literal["return", "score", "skip"] = "skip",
) -> list[StepValue]:
    """Return the values of all sampled turns of a tree, including rejected branches, as `step_values` does.

    The task of each is the seed of the tree.
    """
    leaves = tuple(harvest_leaves(tree))
    if not any(leaf.num_tokens for leaf in leaves):
        return []
    return step_values([Group(tree.seed, leaves)], backup=backup, unfinished=unfinished)


KINDS = {
    "preferences": "tsr_gym.agents.bridges.export:preferences",
    "step-values": "tsr_gym.agents.bridges.export:tree_step_values",
    "trajectories": "tsr_gym.agents.bridges.rows:tree_rows",
    "nodes": "tsr_gym.agents.bridges.rows:tree_nodes",
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
            ``package.module:name`` of your own function from a tree to NamedTuples. A function with a keyword
            ``tokenizer`` gets the folder of the run's tokenizer.
        watch: Called with the number of trees that were read and the total.

    Raises:
        ConfigError: There is no such kind or keyword, or there are no trees.
        InvalidTree: A tree is damaged, or has no tokens, which all kinds but `OF_TEXTS` need, or no tree has a record.
        MissingExtra: The kind, or Parquet, needs a package that is not installed.
        OSError: A file cannot be read or written.
    """
    _records_of(kind, {})
    files = [file for source in sources for file in tree_files(source)]
    if not files:
        raise ConfigError("wanted the folder of at least one run, or a file of a tree")
    read = Tree.load if parse_call(kind, what="kind of records").name in OF_TEXTS else _with_tokens
    records: list[tuple[str, Any]] = []
    for number, file in enumerate(files, start=1):
        records += [(str(file), record) for record in _records_of(kind, _tokenizer_of(file))(read(file))]
        watch(number, len(files))
    if not records:
        raise InvalidTree(f"the {len(files)} trees hold no {kind}: nothing was written")
    write_records(out, [{"tree": tree, **record._asdict()} for tree, record in records], like=type(records[0][1]))
    return Exported(len(files), len(records))


def tree_files(source: Path) -> Iterator[Path]:
    """Yield the files of trees at a path: the file itself, the files in a folder, or those in a run's ``trees``.

    Raises:
        ConfigError: There is no such file, or no tree in the folder.
        InvalidTree: A file in the folder is a link that leaves the folder or the run.
    """
    if not source.is_dir():
        if not source.is_file():
            raise ConfigError(f"{source}: wanted the folder of a run or a file of a tree, found nothing")
        yield source
        return
    folder = source / "trees" if (source / RUN_FILE).is_file() else source
    files = files_in(folder)
    if not files:
        raise ConfigError(f"{folder}: found no trees; a run saves some at every checkpoint (--save-trees)")
    home = source.resolve()
    if outside := [file for file in files if not file.resolve().is_relative_to(home)]:
        raise InvalidTree(f"{outside[0]}: a link that leaves {source} is not followed")
    yield from files


def _records_of(text: str, offered: dict[str, str]) -> Callable[[Tree], Sequence[Any]]:
    call = parse_call(text, what="kind of records")
    if call.name not in KINDS and ":" not in call.name:
        raise ConfigError(f"wanted kind of {', '.join(KINDS)} or package.module:name, got {text!r}")
    if call.name == "step-values":
        require("torch", "agents")
    own = str(call._replace(name=KINDS.get(call.name, call.name)))
    return choose(own, home=__name__, what="kind of records", offered=offered)


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
            role = "user" if len(messages) == len(system) else words.later_role
            messages.append({"role": role, "content": words.turn(tree.nodes[before])})
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
        # A tree's file may name any environment.
        with importing_only((), "give instructions='...' in the kind"):
            made = gym.make(find_env(env))
    except (gym.error.Error, TsrGymError, TypeError) as error:
        raise ConfigError(f"{env} cannot be made to read its rules ({error}): give instructions='...'") from error
    base = made.unwrapped
    made.close()
    return base.instructions if isinstance(base, TextEnv) else ""
