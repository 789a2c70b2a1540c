"""What verl's servers do, with a tiny model: tokens in, tokens and log-probabilities out."""

from types import SimpleNamespace

from tests.agents.tiny import chatml_tokenizer, random_qwen2
from tsr_gym.agents.policies.transformers_engine import TransformersEngine


class Sampling:
    """The client of a run's servers; every request draws anew, as those of a server do.

    Attributes:
        asked: What was asked for: request, prompt and settings.
        model: What answers.
    """

    def __init__(self, *, version=3, reason="completed", silent=False):
        self.tokenizer = chatml_tokenizer()
        self.model = random_qwen2(self.tokenizer)
        self.asked = []
        self.version, self.reason, self.silent = version, reason, silent

    def answer(self, prompt_ids, sampling_params):
        """Return token ids and log-probabilities."""
        engine = TransformersEngine(
            self.model,
            stop_ids=sampling_params["stop_token_ids"],
            max_tokens=sampling_params["max_tokens"],
            temperature=sampling_params["temperature"],
        )
        ((said,),) = engine.generate([prompt_ids], seeds=[[len(self.asked)]])
        return list(said.token_ids), list(said.logprobs)

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        """Return what verl calls a TokenOutput."""
        self.asked.append((request_id, list(prompt_ids), dict(sampling_params)))
        ids, logprobs = self.answer(prompt_ids, sampling_params)
        steps = {"min_global_steps": self.version, "max_global_steps": self.version + 1}
        known = None if self.silent else logprobs
        return SimpleNamespace(token_ids=ids, log_probs=known, stop_reason=self.reason, extra_fields=steps)
