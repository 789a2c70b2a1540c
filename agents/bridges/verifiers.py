"""verifiers: environments of text as its tasksets and environments, and trees as its message graphs and back.

Written for verifiers 0.4.0 (`verifiers.v1`), whose branches prime-rl turns into training samples. Only `tsr_taskset`
and `tree_trace` import verifiers.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import gymnasium as gym

from tsr_gym.agents.bridges.rows import tree_nodes, tree_of_records
from tsr_gym.errors import ConfigError, InvalidTree
from tsr_gym.optional import require
from tsr_gym.registration import env_id
from tsr_gym.text_env import TextEnv
from tsr_gym.tree import Tree
from tsr_gym.wrappers import AnswerFormat

# The instruction for environments whose turns are answers of `AnswerFormat`.
FORM = "Always answer in the form <think> [your reasoning] </think> <answer> [your actions] </answer>."
# Key of a trace's info for the fields of a tree that message nodes do not have.
INFO = "tsr_gym"
# Fields of a tree's nodes that the messages hold.
_IN_MESSAGES = ("prompt_ids", "token_ids", "logprobs")


class MessageGraph(NamedTuple):
    """A tree as messages.

    Attributes:
        nodes: Fields of verifiers' `MessageNode`s: `parent`, `message`, `sampled`, `token_ids`, `mask`, `logprobs`, and
            `advantages` where they are known. A shared beginning of two paths is stored once.
        info: All other fields of the tree.
    """

    nodes: list[dict[str, Any]]
    info: dict[str, Any]


def tree_messages(tree: Tree, advantages: Mapping[int, Sequence[float]] | None = None) -> MessageGraph:
    """Return a tree as a message graph; `tree_from_messages` restores the tree without its snapshots.

    A node of the tree becomes two messages: the prompt, shared by its siblings, and the answer. The tokens along a path
    to an answer are exactly the prompt and sampled tokens: a prompt's message holds the tokens that it adds to the path
    before. A prompt that does not extend the path before, as with a window of history, begins a separate path.

    Args:
        tree: With tokens; nodes without tokens are not among the messages.
        advantages: By the number of a node, one for each token that was sampled to reach it. None to let the trainer
            compute advantages.

    Raises:
        ConfigError: The number of advantages is not the number of tokens.
    """
    nodes: list[dict[str, Any]] = []
    # By tree node: the message of its answer, and all tokens of the path up to its end.
    answers: dict[int, tuple[int, tuple[int, ...]]] = {}
    # By the message before and the added tokens: the message of a prompt, which siblings share.
    prompts: dict[tuple[int | None, tuple[int, ...]], int] = {}
    places: list[int] = []
    for index, node in enumerate(tree.nodes):
        candidate = node.candidate
        if node.parent is None or not candidate.token_ids:
            places.append(-1)
            continue
        before, path = answers.get(node.parent, (None, ()))
        if candidate.prompt_ids[: len(path)] != path:
            before, path = None, ()
        added = candidate.prompt_ids[len(path) :]
        if (before, added) not in prompts:
            prompts[before, added] = len(nodes)
            observed = {"role": "user", "content": str(tree.nodes[node.parent].observation)}
            nodes.append(_message(before, observed, added, sampled=False))
        text = {"role": "assistant", "content": str(candidate.text)}
        answer = _message(prompts[before, added], text, candidate.token_ids, sampled=True)
        answer["logprobs"] = list(candidate.logprobs)
        if advantages is not None:
            answer["advantages"] = _credit(advantages.get(index), len(candidate.token_ids), index)
        answers[index] = (len(nodes), candidate.prompt_ids + candidate.token_ids)
        places.append(len(nodes))
        nodes.append(answer)
    kept = [
        {name: value for name, value in record._asdict().items() if name not in _IN_MESSAGES} | {"message": place}
        for record, place in zip(tree_nodes(tree), places, strict=True)
    ]
    # The root and nodes without tokens have no message that holds their prompt.
    for record, node in zip(kept, tree.nodes, strict=True):
        if record["message"] < 0:
            record["prompt_ids"] = list(node.candidate.prompt_ids)
    return MessageGraph(nodes, {INFO: kept})


def _message(parent: int | None, message: dict[str, str], token_ids: Sequence[int], sampled: bool) -> dict[str, Any]:
    mask = [sampled] * len(token_ids)
    return {"parent": parent, "message": message, "sampled": sampled, "token_ids": list(token_ids), "mask": mask}


def _credit(given: Sequence[float] | None, count: int, index: int) -> list[float]:
    credit = [0.0] * count if given is None else [float(advantage) for advantage in given]
    if len(credit) != count:
        raise ConfigError(f"wanted {count} advantages of node {index}, one for each of its tokens, got {len(credit)}")
    return credit


def tree_from_messages(nodes: Iterable[Mapping[str, Any]], info: Mapping[str, Any]) -> Tree:
    """Return the tree that `tree_messages` wrote.

    Args:
        nodes: Its nodes, or those of a trace by ``node.model_dump()``.
        info: Its info, or that of the trace.

    Raises:
        InvalidTree: They hold no tree of this package.
    """
    messages = list(nodes)
    try:
        records = [_record(dict(kept), messages) for kept in info[INFO]]
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidTree(f"the trace holds no tree of tsr_gym ({type(error).__name__}: {error})") from error
    return tree_of_records("the trace", records)


def _record(kept: dict[str, Any], messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    place = kept.pop("message")
    if place < 0:
        return {**kept, "prompt_ids": list(kept.pop("prompt_ids")), "token_ids": [], "logprobs": []}
    answer, prompt = messages[place], []
    before = answer["parent"]
    # Parents stand before their children in a whole trace, so the loop ends even for a damaged one.
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
    """Return a tree as a `verifiers.v1.Trace`: every root-to-leaf branch is a training sample for prime-rl.

    Write it with ``trace.model_dump()`` or ``to_record(float_decimals=None)``; other records are rounded.

    Args:
        tree: As in `tree_messages`.
        advantages: As in `tree_messages`. Each leaf of a tree has a reward and a trace has only one, so a trainer needs
            these.

    Raises:
        MissingExtra: verifiers is not installed.
    """
    require("verifiers", "verifiers")
    import verifiers.v1 as vf

    # verifiers.v1 does not export these names.
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
    """Return a verifiers `Taskset` and `Env` for an environment of text.

    A plug-in of verifiers is a module whose ``__all__`` holds both; a task is the instance of a seed. Each reply of the
    model is a turn of the environment, in the form in which this package's models answer.

    Args:
        env: Gymnasium id or short name.
        tasks: Number of instances; their seeds count from 0.
        settings: Of the environment.

    Raises:
        ConfigError: The environment is not made of text.
        MissingExtra: verifiers is not installed.
    """
    require("verifiers", "verifiers")
    import verifiers.v1 as vf
    from verifiers.v1.harnesses.null import NullHarnessConfig

    name = env_id(env)

    def make() -> gym.Env[str, str]:
        made: gym.Env[str, str] = gym.make(name, **settings)
        if not isinstance(base := made.unwrapped, TextEnv):
            raise ConfigError(f"wanted an environment of text (a tsr_gym.TextEnv), {name} is a {type(base).__name__}")
        return made if base.reads_tags else AnswerFormat(made)

    base: Any = make().unwrapped
    rules = base.instructions if base.reads_tags else f"{base.instructions}\n{FORM}"

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
                data = TsrData(name=f"{name}#{seed}", prompt=observation, system_prompt=rules, seed=seed)
                yield TsrTask(data, self.config.task)

    class TsrEnvConfig(vf.EnvConfig):  # type: ignore[misc, unused-ignore]
        """The player: its turns are replies of the model, so it needs neither tools nor a machine of its own."""

        player: vf.AgentConfig = vf.AgentConfig(harness=NullHarnessConfig(id="null"), runtime=vf.SubprocessConfig())

    class TsrEnv(vf.Env[TsrEnvConfig]):  # type: ignore[misc, unused-ignore]
        """An episode: the model's replies are turns of the environment."""

        async def run(self, task: Any, agents: Any) -> None:
            await _play(make(), task, agents.player)

    return TsrTaskset, TsrEnv


async def _play(env: gym.Env[str, str], task: Any, player: Any) -> None:
    """Play the episode of a task, and record its return and success."""
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
