"""ModelPlayer: from a configuration and a model to environments and to policies that speak through the model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Any, NamedTuple

from tsr_gym.agents.episodes.env_pool import EnvPool, task_pool
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.models.language_model import LanguageModel, pick_autocast, stop_ids
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.policies.choose_engine import pick_engine
from tsr_gym.agents.policies.engine import Engine, Host
from tsr_gym.agents.policies.prompts import History, Prompt, choose_prompt
from tsr_gym.errors import ConfigError
from tsr_gym.registration import env_id
from tsr_gym.text_env import TextEnv
from tsr_gym.tools import Tool
from tsr_gym.tree import Candidate, Expand, Node, Tree
from tsr_gym.wrappers import AnswerFormat
from tsr_gym.wrappers.tool_calls import Family, family_of


@dataclass(frozen=True, slots=True)
class ModelPlayer:
    """A model and a task that fit together.

    Attributes:
        env: The environment's id or short name.
        task: What is played.
        model: How the model is used.
        policy: The model.
        host: Where it is held for sampling; None to sample from the model itself.
    """

    env: str
    task: TaskConfig
    model: ModelConfig
    policy: LanguageModel
    host: Host | None = None

    def __post_init__(self) -> None:
        made_for = self.policy.card.env
        if made_for is not None and made_for != env_id(self.env):
            raise ConfigError(f"the model was made for {made_for}, wanted is {env_id(self.env)}: use another --model")

    def pool(self, split: str | None, search: SearchConfig | None = None) -> EnvPool:
        """Return environments of a split of the instances, with the dice of a search.

        Raises:
            ConfigError: A setting or the scorer is unknown.
        """
        fixed = self.policy.card.env_settings
        return task_pool(self.env, self.task, split, search, fixed=fixed, think=self.think, calls=self.calls)

    def chat(
        self, instructions: str, *, temperature: float, reads_tags: bool = False, tools: Sequence[Tool] = ()
    ) -> ChatPolicy:
        """Return the model as a policy that samples at a temperature.

        Args:
            instructions: The rules of the game, as `TextEnv.instructions` gives them.
            temperature: Of sampling.
            reads_tags: Whether the environment defines a protocol (`TextEnv.reads_tags`).
            tools: Of the environment (`TextEnv.tools`).

        Raises:
            ConfigError: The tokenizer has no usable chat template, or the prompt is for tools and there are none.
        """
        prompt = self._prompt(instructions, reads_tags, tools)
        engine = self.engine(temperature=temperature, stop=prompt.stop)
        return ChatPolicy(engine, self.policy.tokenizer, prompt, self.history)

    def engine(self, *, temperature: float, stop: str = "") -> Engine:
        """Return the engine that samples from the model.

        Args:
            temperature: Of sampling.
            stop: Text of a token that ends an answer, see `Prompt.stop`.
        """
        stops = stop_ids(self.policy, stop)
        if self.host is not None:
            return self.host.engine(stop_ids=stops, max_tokens=self.max_tokens, temperature=temperature)
        return engine_here(
            self.model.engine,
            self.policy.model,
            stop_ids=stops,
            max_tokens=self.max_tokens,
            temperature=temperature,
            # Only with a full history does a prompt extend an earlier one; otherwise the cache is hardly ever hit.
            reuse=self.history.grows,
            max_batch=self.model.max_batch,
            autocast=pick_autocast(self.model.dtype, next(self.policy.model.parameters()).device),
        )

    @property
    def history(self) -> History:
        """How much of an episode a prompt repeats: as configured, or as the model's card has it."""
        return History.parse(self.policy.card.history if self.model.history == "auto" else self.model.history)

    def chat_about(self, base: TextEnv[Any], *, temperature: float) -> ChatPolicy:
        """Return the model as a policy for an environment, with its instructions and in its form."""
        return self.chat(base.instructions, temperature=temperature, reads_tags=base.reads_tags, tools=base.tools)

    def searcher(self, base: TextEnv[Any], search: SearchConfig) -> ChatPolicy | None:
        """Return the policy of searches at `SearchConfig.search_temperature`; None where plain play has the same."""
        if search.search_temperature is None or search.search_temperature == self.model.temperature:
            return None
        return self.chat_about(base, temperature=search.search_temperature)

    @property
    def max_tokens(self) -> int:
        """Longest answer: the configured one, or the model card's where that is smaller."""
        return min(self.model.max_tokens, self.policy.card.max_tokens or self.model.max_tokens)

    @property
    def think(self) -> bool:
        """Whether answers have a thinking part."""
        return self._prompt("").think

    @property
    def calls(self) -> Family | None:
        """The form of the tool calls that answers are made of; None where they are texts.

        Raises:
            ConfigError: The chat template shows no form that can be read.
        """
        if self._prompt("").tools is None:
            return None
        return (
            self.model.tool_calls
            if self.model.tool_calls != "auto"
            else family_of(str(self.policy.tokenizer.chat_template))
        )

    def _prompt(self, instructions: str, reads_tags: bool = False, tools: Sequence[Tool] = ()) -> Prompt:
        return choose_prompt(
            self.model.prompt,
            instructions,
            preferred=self.policy.card.prompt,
            max_tokens=self.max_tokens,
            reads_tags=reads_tags,
            tools=tools,
        )


class Proposal(NamedTuple):
    """A turn that a model would take.

    Attributes:
        action: The action; empty for answers without the required form.
        times: Number of samples with this action.
        probability: Of the likeliest of these answers, all tokens together.
    """

    action: str
    times: int
    probability: float


class Proposer:
    """Ask a model for its turns.

    Args:
        player: The model at play.
        base: The environment, for its rules and its form of answers.
        temperature: Of sampling.

    Raises:
        ConfigError: The model calls tools, and a path of bare actions has none.
    """

    def __init__(self, player: ModelPlayer, base: TextEnv[Any], temperature: float = 1.0) -> None:
        if player.calls is not None:
            raise ConfigError("a model that calls tools cannot propose turns here: wanted another prompt than tools")
        self._chat = player.chat_about(base, temperature=temperature)
        self._plain = base.reads_tags
        self._think = player.think

    def __call__(self, path: Sequence[Node], *, seed: int, samples: int) -> list[Proposal]:
        """Return the turns that the model would take next, the most frequent first, then the likeliest.

        Args:
            path: From the first node to here; its candidates are bare actions.
            seed: Of the samples.
            samples: How many to draw.

        Raises:
            PromptTooLong: The episode outgrew the model's context.
        """
        # A tree of one path stands for the episode, so that the prompt is the one that the policy has in a search.
        tree = Tree(seed=seed)
        for index, node in enumerate(path):
            parent = None if index == 0 else index - 1
            tree.add(replace(node, parent=parent, candidate=Candidate(self._answer(node.candidate.text))))
        (candidates,) = self._chat([(tree, Expand(len(path) - 1, samples))])
        probabilities: dict[str, list[float]] = {}
        for candidate in candidates:
            probabilities.setdefault(self._action(candidate.text), []).append(exp(sum(candidate.logprobs)))
        proposals = [Proposal(action, len(values), max(values)) for action, values in probabilities.items()]
        return sorted(proposals, key=lambda proposal: (-proposal.times, -proposal.probability, proposal.action))

    def _answer(self, action: str) -> str:
        """Return the answer by which the model would have taken an action."""
        if self._plain:
            return action
        return f"{'<think></think>' if self._think else ''}<answer>{action}</answer>"

    def _action(self, text: str) -> str:
        return text if self._plain else AnswerFormat.parse(text, think=self._think) or ""


def engine_here(name: str, model: Any, *, autocast: Any = None, **settings: Any) -> Engine:
    """Return an engine that samples from a model in this process.

    Args:
        name: ``trie``, or ``auto`` for it where it is faster; with any other name transformers samples.
        model: A causal language model.
        autocast: Lower precision to compute in, None for the model's own.
        settings: Of the engine.

    Raises:
        ConfigError: The trie engine is wanted and cannot compute the model.
    """
    if name in ("auto", "trie"):
        from tsr_gym.agents.policies.trie_engine import TrieEngine, why_not

        reason = f"wanted full precision, got {autocast}" if autocast is not None else why_not(model)
        if name == "auto":
            name = pick_engine(model.config.to_dict(), reason)
        elif reason:
            raise ConfigError(f"engine trie: {reason}: use --engine transformers")
        if name == "trie":
            return TrieEngine(model, **settings)
    from tsr_gym.agents.policies.transformers_engine import TransformersEngine

    return TransformersEngine(model, autocast=autocast, **settings)
