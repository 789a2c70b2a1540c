"""ApiPlayer: a task and a model behind an OpenAI-compatible server; torch-free."""

from dataclasses import dataclass
from typing import Any

from tsr_gym.agents.episodes.env_pool import EnvPool, task_pool
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.chat_api import ApiConfig, ApiPolicy, ChatApi
from tsr_gym.agents.policies.prompts import History, choose_prompt
from tsr_gym.errors import ConfigError
from tsr_gym.text_env import TextEnv
from tsr_gym.wrappers.tool_calls import Family


@dataclass(frozen=True, slots=True)
class ApiPlayer:
    """A model that one can only ask, and a task.

    Attributes:
        env: The environment's id or short name.
        task: What is played.
        model: How the model is used.
        api: The server.
    """

    env: str
    task: TaskConfig
    model: ModelConfig
    api: ChatApi

    def pool(self, split: str | None, search: SearchConfig | None = None) -> EnvPool:
        """Return environments of a split of the instances, with the dice of a search.

        Raises:
            ConfigError: A setting or the scorer is unknown.
        """
        prompt = choose_prompt(self.model.prompt, "")
        # A server parses the model's calls itself, and `ChatApi` writes them in this form.
        calls: Family | None = None if prompt.tools is None else "hermes"
        return task_pool(self.env, self.task, split, search, think=prompt.think, calls=calls)

    def chat_about(self, base: TextEnv[Any], *, temperature: float) -> ApiPolicy:
        """Return the model as a policy for an environment, with its instructions."""
        limit, history = self.model.max_tokens, "full" if self.model.history == "auto" else self.model.history
        prompt = choose_prompt(
            self.model.prompt, base.instructions, max_tokens=limit, reads_tags=base.reads_tags, tools=base.tools
        )
        return ApiPolicy(self.api, prompt, History.parse(history), temperature=temperature, max_tokens=limit)


def api_player(env: str, task: TaskConfig, model: ModelConfig, api: ApiConfig) -> ApiPlayer:
    """Return the player that a configuration names.

    Raises:
        ConfigError: The model has no name.
        MissingExtra: httpx is not installed.
    """
    if model.model == "default":
        raise ConfigError("wanted --model NAME, the name by which the server knows the model, got none")
    return ApiPlayer(env, task, model, ChatApi(model.model, api))
