"""ApiPolicy: a model behind an OpenAI-compatible server as the policy of a search; text in, text out.

Its candidates have no tokens, so nothing can be trained on them.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tsr_gym.agents.policies.chat_api import ChatApi, Said
from tsr_gym.agents.policies.chat_policy import path_from, sample_seeds
from tsr_gym.agents.policies.prompts import History, Prompt
from tsr_gym.budget import Budget
from tsr_gym.tree import Candidate, Expand, Tree


class ApiPolicy:
    """Ask a server for the next turns of many trees at once, a request for every sample.

    A server cannot be made to begin an answer with given words: `Prompt.forced` is left to the instructions, and an
    answer is what was said, word by word.

    Args:
        api: The server.
        prompt: The words around observations.
        history: How much of the episode a conversation repeats.
        temperature: Of sampling.
        max_tokens: Longest answer.
    """

    def __init__(
        self, api: ChatApi, prompt: Prompt, history: History, *, temperature: float, max_tokens: int = 400
    ) -> None:
        self.api = api
        self.prompt = prompt
        self.history = history
        self.temperature = temperature
        self.max_tokens = max_tokens

    def __call__(self, requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        """Return sampled candidates for every wish, in order; what they cost is charged to their trees.

        Raises:
            EngineFailed: The server refuses to answer, or does not.
            PromptTooLong: A conversation is longer than the model's context.
        """
        pool = ThreadPoolExecutor(self.api.config.at_once)
        try:
            asked = [
                [pool.submit(self._ask, messages, seed) for seed in row]
                for messages, row in zip(
                    [self.messages(tree, wish.node) for tree, wish in requests], sample_seeds(requests), strict=True
                )
            ]
            said = [[one.result() for one in row] for row in asked]
        finally:
            # Where one fails, those that were not sent yet are not sent.
            pool.shutdown(cancel_futures=True)
        for (tree, _), row in zip(requests, said, strict=True):
            tree.charge(_cost(row))
        return [[Candidate(one.text) for one in row] for row in said]

    def messages(self, tree: Tree, node: int) -> list[dict[str, str]]:
        """Return the conversation that leads to the next turn at a node."""
        first, *rest = path_from(tree, node, self.history.first(tree.nodes[node].depth))
        system = [{"role": "system", "content": self.prompt.system}] if self.prompt.system else []
        messages = [*system, {"role": "user", "content": self.prompt.turn(tree.nodes[first])}]
        for index in rest:
            here = tree.nodes[index]
            messages.append({"role": "assistant", "content": str(here.candidate.text)})
            messages.append({"role": "user", "content": self.prompt.turn(here)})
        return messages

    def _ask(self, messages: list[dict[str, str]], seed: int) -> Said:
        return self.api.ask(messages, seed=seed, temperature=self.temperature, max_tokens=self.max_tokens)


def _cost(row: Sequence[Said]) -> Budget:
    return Budget(
        sampled_tokens=sum(one.sampled_tokens for one in row),
        prompt_tokens=sum(one.prompt_tokens for one in row),
        prompt_tokens_saved=sum(one.cached_tokens for one in row),
    )
