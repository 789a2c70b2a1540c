"""ChatPolicy: a language model as the policy of a search.

Text of the environment is encoded once, when it first appears. Answers of the model stay the ids they were sampled as.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from tsr_gym.agents.policies.engine import Completion, Engine
from tsr_gym.agents.policies.prompts import History, Prompt
from tsr_gym.agents.policies.text_encoder import text_encoder
from tsr_gym.errors import ConfigError, EngineFailed
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Candidate, Expand, Tree
from tsr_gym.wrappers.tool_calls import family_of, read_call

# Markers in brackets that no template writes.
_SLOT, _FIRST, _SAID = "\u27e6text\u27e7", "\u27e6first\u27e7", "\u27e6answer\u27e7"
_THOUGHT, _NAME = "\u27e6thought\u27e7", "\u27e6name\u27e7"
# Signs that a template may write otherwise inside a message.
_SIGNS = '\u27e6a"b\\c\nd<e>&\u00e9\u27e7'
# Mistral's templates demand an identifier of nine signs.
_CALL_ID = "call00001"


class ChatPolicy:
    """Ask an engine for the next turns of many trees at once.

    Args:
        engine: Samples.
        tokenizer: A Hugging Face tokenizer with a chat template.
        prompt: The words around observations.
        history: How much of the episode a prompt repeats.

    Attributes:
        num_calls: Calls of the engine so far.
        num_tokens: Tokens that it sampled.

    Raises:
        ConfigError: The tokenizer has no chat template, or one that rewrites messages depending on their text; or the
            prompt is for tools, and there are none; or the history is without thoughts, and the template keeps them.
    """

    def __init__(self, engine: Engine, tokenizer: Any, prompt: Prompt, history: History) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.prompt = prompt
        self.history = history
        self.num_calls = self.num_tokens = 0
        self._template = _Template(tokenizer, prompt)
        if not history.thoughts:
            self._template.check_thoughts()
        self._encode = lru_cache(maxsize=65_536)(text_encoder(tokenizer))
        # The answers of a small model are few, and many samples give each of them.
        self._decode = lru_cache(maxsize=4_096)(self._text)

    def __call__(self, requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        """Return sampled candidates for every wish, in order.

        Raises:
            EngineFailed: An answer was aborted.
        """
        prompts = [self.prompt_ids(tree, wish.node) for tree, wish in requests]
        completions = self.engine.generate(prompts, seeds=sample_seeds(requests))
        self.num_calls += 1
        self.num_tokens += sum(len(completion.token_ids) for row in completions for completion in row)
        for (tree, _), row in zip(requests, completions, strict=True):
            tree.spend(prompt_tokens_saved=sum([completion.num_cached for completion in row]))
        return [
            [self._candidate(prompt, completion) for completion in row]
            for prompt, row in zip(prompts, completions, strict=True)
        ]

    def prompt_ids(self, tree: Tree, node: int) -> tuple[int, ...]:
        """Return the token ids that the model sees at a node."""
        here = tree.nodes[node]
        # With the whole history, a prompt is the one that led here and what came after it: nothing that the model has
        # read is encoded again, so that its cached keys and values stay valid.
        if self.history.grows and here.candidate.prompt_ids:
            return here.candidate.prompt_ids + self._said(here.candidate) + self._bridge(tree, node)
        path = path_from(tree, node, self.history.first(here.depth))
        if not self.history.thoughts:
            turns = [self.prompt.turn(tree.nodes[index]) for index in path]
            answers = [str(tree.nodes[index].candidate.text) for index in path[1:]]
            return self._encode(self._template.episode(turns, answers, [*map(self.tool_called, answers)]))
        ids = self._encode(self._template.opening(self.prompt.turn(tree.nodes[path[0]])))
        for index in path[1:]:
            ids += self._said(tree.nodes[index].candidate) + self._bridge(tree, index)
        return ids

    def _said(self, candidate: Candidate) -> tuple[int, ...]:
        """Return the ids of an answer: as sampled, or the encoded text of one that was not sampled by a model."""
        return candidate.token_ids or self._encode(candidate.text.removeprefix(self.prompt.forced))

    def _bridge(self, tree: Tree, node: int) -> tuple[int, ...]:
        """Return the ids between an answer of the model and the next one."""
        here = tree.nodes[node]
        name = self.tool_called(str(here.candidate.text))
        ids = self._encode(self._template.bridge(self.prompt.turn(here), name))
        sampled = here.candidate.token_ids
        # The template begins with the end of the model's turn. An answer that the model ended itself has that token
        # already; one that was cut off at the limit has not.
        return ids[1:] if sampled and ids and sampled[-1] == ids[0] else ids

    def tool_called(self, answer: str) -> str:
        """Return the name of the tool that an answer calls; "" where the template shows no names, or there is no tool.

        Raises:
            ConfigError: The template shows names, and no form of calls that can be read.
        """
        if not self._template.shows_names:
            return ""
        name = read_call(answer, family_of(str(self.tokenizer.chat_template))).name
        # Any other text could hold signs of the template.
        return name if name in {tool.name for tool in self.prompt.tools or ()} else ""

    def _candidate(self, prompt: tuple[int, ...], completion: Completion) -> Candidate:
        if completion.finish_reason == "abort":
            # The model did not end it, so it is no sample of the policy, and training on it would be wrong.
            raise EngineFailed(f"an answer was aborted after {len(completion.token_ids)} tokens: ask again")
        ids = completion.token_ids
        text = self.prompt.forced + self._decode(ids)
        return Candidate(text, prompt, ids, completion.logprobs, completion.weight_version)

    def _text(self, ids: tuple[int, ...]) -> str:
        """Return the text of an answer; in calls of tools, special tokens have a meaning, except at the end."""
        if self.prompt.tools is None:
            return str(self.tokenizer.decode(ids, skip_special_tokens=True))
        ends = {self.tokenizer.eos_token_id, *self._encode(self._template.bridge(""))[:1]}
        return str(self.tokenizer.decode(ids[:-1] if ids and ids[-1] in ends else ids, skip_special_tokens=False))


class _Template:
    """A chat template cut into what stands around a message, so that it is rendered once and not every turn."""

    def __init__(self, tokenizer: Any, prompt: Prompt) -> None:
        # Imported here, because a policy without a model needs this file's seeds and no templates.
        from jinja2 import TemplateError

        if not tokenizer.chat_template:
            raise ConfigError(
                "the tokenizer has no chat template: wanted an instruction-tuned model, or set tokenizer.chat_template"
            )
        if prompt.tools == ():
            raise ConfigError("the environment has no tools that a model can call: use another prompt")
        # A short episode with markers is rendered once and cut at the markers. A template that changes a message by its
        # text or its place in the episode would make the pieces wrong, so every marker has to come out exactly once.
        system = [{"role": "system", "content": prompt.system}] if prompt.system else []
        tools = [tool.schema for tool in prompt.tools] if prompt.tools else None

        def render(turns: Sequence[str], answers: Sequence[str], names: Sequence[str] = ()) -> str:
            messages = [*system, {"role": "user", "content": turns[0]}]
            for answer, turn, name in zip(answers, turns[1:], names or [_NAME] * len(answers), strict=True):
                later = {"role": prompt.later_role, "content": turn}
                later |= {} if prompt.tools is None else result_fields(name)
                messages += [{"role": "assistant", "content": answer}, later]
            return str(tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True))

        self._render = render
        try:
            opening = render([_SLOT], [])
            episode = render([_FIRST, _SLOT], [_SAID])
            signs = _SIGNS if prompt.tools is None else render([_FIRST, _SIGNS], [_SAID]).rpartition(_SAID)[2]
        except TemplateError as error:
            raise ConfigError(f"the chat template refuses the messages of an episode ({error}): change it") from error
        bridge = episode.rpartition(_SAID)[2]
        once = [(opening, _SLOT), (episode, _FIRST), (episode, _SAID), (bridge, _SLOT)]
        if any(text.count(slot) != 1 for text, slot in once):
            raise ConfigError("the chat template drops, repeats or rewrites messages: it cannot carry an episode")
        self._opening = opening.split(_SLOT)
        self._bridge = bridge.split(_SLOT)
        self.shows_names = _NAME in bridge
        self._forced = prompt.forced
        self._write: Callable[[str], str] = str
        if prompt.tools is not None:
            if hidden := [tool.name for tool in prompt.tools if tool.name not in opening]:
                raise ConfigError(
                    f"the chat template does not show the tool {hidden[0]!r}: wanted one that knows tools"
                )
            self._check_tools(signs)

    def _check_tools(self, signs: str) -> None:
        """Find out how the template writes the text of a tool's message, and check that its place changes nothing.

        Raises:
            ConfigError: It does.
        """
        from jinja2 import TemplateError

        # Llama's templates write the text as a string of JSON.
        writers = [write for write in (str, _in_json) if signs == write(_SIGNS).join(self._bridge)]
        if not writers:
            raise ConfigError("the chat template rewrites the text of a tool's message: it cannot carry an episode")
        self._write = writers[0]
        try:
            longer = self._render([_FIRST, _SLOT, _SLOT], [_SAID, _SAID])
        except TemplateError:
            # Mistral's templates count an answer in plain text as a turn of the dialogue, and refuse the second.
            return
        if longer != self.opening(_FIRST) + 2 * (_SAID + self.bridge(_SLOT)):
            raise ConfigError("the chat template changes earlier turns of an episode with tools: it cannot carry it")

    def check_thoughts(self) -> None:
        """Check that the template leaves the thoughts of earlier answers out, and nothing else.

        Raises:
            ConfigError: It does not.
        """
        text = self._render([_FIRST, _SLOT], [f"<think>\n{_THOUGHT}\n</think>\n\n{_SAID}"])
        if _THOUGHT in text or text.count(_SAID) != 1:
            raise ConfigError("the chat template does not drop earlier thoughts here: wanted history=full")

    def episode(self, turns: Sequence[str], answers: Sequence[str], names: Sequence[str]) -> str:
        """Return a prompt as the template writes it from the messages of the whole episode."""
        return self._render(turns, answers, names) + self._forced

    def opening(self, text: str) -> str:
        """Return everything up to the model's first answer."""
        return self._opening[0] + text + self._opening[1] + self._forced

    def bridge(self, text: str, name: str = _NAME) -> str:
        """Return everything from the end of one answer to the beginning of the next; the name is that of its tool."""
        return self._write(text).join([part.replace(_NAME, name) for part in self._bridge]) + self._forced


def result_fields(name: str) -> dict[str, str]:
    """Return the fields of a message of the role ``tool`` other than its role and text."""
    return {"tool_call_id": _CALL_ID, "name": name}


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def sample_seeds(requests: Sequence[tuple[Tree, Expand]]) -> list[list[int]]:
    """Return a seed for every sample: from the tree's seed, the path to the node and the child's number."""
    pending: Counter[tuple[int, int]] = Counter()
    seeds = []
    for tree, wish in requests:
        key = (id(tree), wish.node)
        # Numbers continue over earlier children and over equal wishes of this call: a node that is asked twice for 4
        # gets the samples of one that is asked for 8.
        first = len(tree.children(wish.node)) + pending[key]
        pending[key] += wish.samples
        address = tree.branch(wish.node)
        seeds.append([derive_seed(tree.seed, "sample", *address, first + number) for number in range(wish.samples)])
    return seeds


def path_from(tree: Tree, node: int, depth: int) -> list[int]:
    """Return the nodes from the ancestor at a depth down to a node."""
    path = [node]
    while tree.nodes[path[-1]].depth > depth:
        parent = tree.nodes[path[-1]].parent
        assert parent is not None
        path.append(parent)
    return path[::-1]
