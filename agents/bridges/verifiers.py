"""verifiers: our worlds as its tasksets and environments, and trees as its message graphs and back.

Written for verifiers 0.4.0 (`verifiers.v1`), whose branches prime-rl turns into training samples. The exporter and its
way back need nothing of verifiers'; only `tsr_taskset` and `tree_trace` import it.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import gymnasium as gym

from tsr_gym.agents.bridges.nodes import tree_nodes, tree_of_records
from tsr_gym.errors import ConfigError, InvalidTree
from tsr_gym.optional import require
from tsr_gym.registration import env_id
from tsr_gym.text_env import TextEnv
from tsr_gym.tree import Tree
from tsr_gym.wrappers import AnswerFormat

# What a model is told where turns are answers of `AnswerFormat`.
FORM = "Always answer in the form <think> [your reasoning] </think> <answer> [your actions] </answer>."
# Where a trace keeps what its nodes have no place for.
INFO = "tsr_gym"
# What stands in the messages instead.
_IN_MESSAGES = ("prompt_ids", "token_ids", "logprobs")


class MessageGraph(NamedTuple):
    """A tree as messages.

    Attributes:
        nodes: Fields of verifiers' `MessageNode`s: `parent`, `message`, `sampled`, `token_ids`, `mask`, `logprobs`, and
            `advantages` where they are known. What two paths share stands there once.
        info: Everything else of the tree.
    """

    nodes: list[dict[str, Any]]
    info: dict[str, Any]


def tree_messages(tree: Tree, advantages: Mapping[int, Sequence[float]] | None = None) -> MessageGraph:
    """Return a tree as a message graph; `tree_from_messages` makes the same tree of it, snapshots left out.

    A node of the tree becomes the message that the model answered, shared by its siblings, and the answer. Tokens along
    a path to an answer are those that the model saw and sampled: a message holds what a prompt adds to what came
    before it, and where a prompt does not extend that, as with a window of history, it begins a path of its own.

    Args:
        tree: With tokens; nodes without are not among the messages.
        advantages: By the number of a node, one for each token that was sampled to reach it. None where a trainer is to
            compute its own.

    Raises:
        ConfigError: There are not as many advantages as tokens.
    """
    nodes: list[dict[str, Any]] = []
    # By tree node: the message that its answer became, and all tokens up to there.
    answers: dict[int, tuple[int, tuple[int, ...]]] = {}
    asked: dict[tuple[int | None, tuple[int, ...]], int] = {}
    places: list[int] = []
    for index, node in enumerate(tree.nodes):
        said = node.candidate
        if node.parent is None or not said.token_ids:
            places.append(-1)
            continue
        before, known = answers.get(node.parent, (None, ()))
        if said.prompt_ids[: len(known)] != known:
            before, known = None, ()
        added = said.prompt_ids[len(known) :]
        if (before, added) not in asked:
            asked[before, added] = len(nodes)
            shown = {"role": "user", "content": str(tree.nodes[node.parent].observation)}
            nodes.append(_message(before, shown, added, sampled=False))
        answer = _message(asked[before, added], {"role": "assistant", "content": str(said.text)}, said.token_ids, True)
        answer["logprobs"] = list(said.logprobs)
        if advantages is not None:
            answer["advantages"] = _credit(advantages.get(index), len(said.token_ids), index)
        answers[index] = (len(nodes), said.prompt_ids + said.token_ids)
        places.append(len(nodes))
        nodes.append(answer)
    kept = [
        {name: value for name, value in record._asdict().items() if name not in _IN_MESSAGES} | {"message": place}
        for record, place in zip(tree_nodes(tree), places, strict=True)
    ]
    # The first node, and those without tokens, have no message that would hold their prompt.
    for record, node in zip(kept, tree.nodes, strict=True):
        if record["message"] < 0:
            record["prompt_ids"] = list(node.candidate.prompt_ids)
    return MessageGraph(nodes, {INFO: kept})


def _message(parent: int | None, message: dict[str, str], token_ids: Sequence[int], sampled: bool) -> dict[str, Any]:
    mask = [sampled] * len(token_ids)
    return {"parent": parent, "message": message, "sampled": sampled, "token_ids": list(token_ids), "mask": mask}


def _credit(given: Sequence[float] | None, count: int, index: int) -> list[float]:
    credit = [0.0] * count if given is None else [float(one) for one in given]
    if len(credit) != count:
        raise ConfigError(f"wanted {count} advantages of node {index}, one for each of its tokens, got {len(credit)}")
    return credit


def tree_from_messages(nodes: Iterable[Mapping[str, Any]], info: Mapping[str, Any]) -> Tree:
    """Return the tree that `tree_messages` wrote.

    Args:
        nodes: Its nodes, or those of a trace by ``node.model_dump()``.
        info: Its info, or that of the trace.

    Raises:
        InvalidTree: They hold no tree of ours.
    """
    messages = list(nodes)
    try:
        records = [_record(dict(kept), messages) for kept in info[INFO]]
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidTree(f"the trace holds no tree of tsr_gym's ({type(error).__name__}: {error})") from error
    return tree_of_records("the trace", records)


def _record(kept: dict[str, Any], messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    place = kept.pop("message")
    if place < 0:
        return {**kept, "prompt_ids": list(kept.pop("prompt_ids")), "token_ids": [], "logprobs": []}
    answer, prompt = messages[place], []
    before = answer["parent"]
    # Parents stand before their children, so that this ends.
    while before is not None and before < place:
        prompt.append(list(messages[before]["token_ids"]))
        place, before = before, messages[before]["parent"]
    return {
        **kept,
        "prompt_ids": [token for part in reversed(prompt) for token in part],
        "token_ids": list(answer["token_ids"]),
        "logprobs": list(answer["logprobs"]),
    }


def tree_trace(tree: Tree, advantages: Mapping[int, Sequence[float]] | None = None) -> Any:
    """Return a tree as a `verifiers.v1.Trace`: every root-to-leaf branch is a training sample of prime-rl's.

    Write it with ``trace.model_dump()`` or ``to_record(float_decimals=None)``: a record is rounded otherwise.

    Args:
        tree: As in `tree_messages`.
        advantages: As there. Leaves of a tree have rewards of their own, and a trace has one, so that a trainer needs
            these.

    Raises:
        MissingExtra: verifiers is not installed.
    """
    require("verifiers", "verifiers")
    import verifiers.v1 as vf

    # Not among the names that verifiers hands on.
    parts = import_module("verifiers.v1.trace")
    graph = tree_messages(tree, advantages)
    name = f"tree {tree.seed}"
    task = parts.TraceTask(type="TsrTree", data=vf.TaskData(name=name, prompt=str(tree.nodes[tree.root].observation)))
    agent = parts.AgentInfo(config=vf.AgentConfig())
    leaves = [tree.total(leaf, "reward") for leaf in tree.chosen or (tree.root,)]
    trace = parts.Trace(task=task, agent=agent, nodes=graph.nodes, info=graph.info, is_completed=True, ok=True)
    trace.record_reward("return", float(sum(leaves) / len(leaves)), 1.0)
    return trace


def tsr_taskset(env: str, *, tasks: int = 1000, **settings: Any) -> tuple[type[Any], type[Any]]:
    """Return a `Taskset` and an `Env` of verifiers' for an environment of text.

    A plug-in of verifiers is a module whose ``__all__`` holds both; a task is the instance of a seed. The environment
    is stepped beside the model's conversation; a turn is written as this package's models write it.

    Args:
        env: Gymnasium id or short name.
        tasks: How many instances, of the seeds from 0 on.
        settings: Of the environment.

    Raises:
        ConfigError: The environment is not made of text.
        MissingExtra: verifiers is not installed.
    """
    require("verifiers", "verifiers")
    import verifiers.v1 as vf

    name = env_id(env)

    def make() -> gym.Env[str, str]:
        made: gym.Env[str, str] = gym.make(name, **settings)
        base = made.unwrapped
        if not isinstance(base, TextEnv):
            raise ConfigError(f"wanted an environment of text (a tsr_gym.TextEnv), {name} is a {type(base).__name__}")
        return made if base.reads_tags else AnswerFormat(made)

    base: Any = make().unwrapped
    told = base.instructions if base.reads_tags else f"{base.instructions}\n{FORM}"

    class TsrData(vf.TaskData):  # type: ignore[misc, unused-ignore]
        """A task: the instance of a seed."""

        seed: int

    class TsrTask(vf.Task[TsrData, vf.State, vf.TaskConfig]):  # type: ignore[misc, unused-ignore]
        """A task of this environment."""

    class TsrTaskset(vf.Taskset[TsrTask, vf.TasksetConfig]):  # type: ignore[misc, unused-ignore]
        """The instances of an environment, in the order of their seeds."""

        def load(self) -> Iterable[Any]:
            played = make()
            for seed in range(tasks):
                observation, _ = played.reset(seed=seed)
                data = TsrData(name=f"{name}#{seed}", prompt=observation, system_prompt=told, seed=seed)
                yield TsrTask(data, self.config.task)

    class TsrEnvConfig(vf.EnvConfig):  # type: ignore[misc, unused-ignore]
        """Who plays."""

        player: vf.AgentConfig = vf.AgentConfig()

    class TsrEnv(vf.Env[TsrEnvConfig]):  # type: ignore[misc, unused-ignore]
        """An episode: the model's replies are turns of the environment."""

        async def run(self, task: Any, agents: Any) -> None:
            await _play(make(), task, agents.player)

    return TsrTaskset, TsrEnv


async def _play(env: gym.Env[str, str], task: Any, player: Any) -> None:
    """Play the episode of a task, and record what it earned."""
    env.reset(seed=task.data.seed)
    total, over = 0.0, False
    info: dict[str, Any] = {}
    async with player.interaction(task) as interaction:
        segment = await interaction.turn()
        while not segment.terminated:
            observation, reward, terminated, truncated, info = env.step(segment.last_reply)
            total += float(reward)
            over = terminated or truncated
            if over:
                break
            segment = await interaction.turn(observation)
    trace = interaction.trace
    trace.record_reward("return", total, 1.0)
    trace.record_metric("success", float(bool(info.get("success", False))))
    trace.record_metric("finished", float(over))
