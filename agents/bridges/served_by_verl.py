"""verl's servers as the host of an engine, asked from a thread that is not that of their loop."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tsr_gym.agents.policies.engine import Capabilities, Completion
from tsr_gym.agents.policies.vllm_engine import Asked
from tsr_gym.errors import EngineFailed, Unsupported


@dataclass(frozen=True, slots=True)
class ServedByVerl:
    """The servers of a run, for the search of one prompt.

    Attributes:
        client: An ``LLMServerClient`` of verl's.
        uid: Of the prompt; requests with the same one go to the same server and its prefix cache.
        events: The loop that the client lives in.
        context: Longest sequence.
        vocabulary: Number of tokens.
        versions: Of the weights that answered so far.
    """

    client: Any
    uid: str
    events: asyncio.AbstractEventLoop
    context: int
    vocabulary: int
    versions: set[int] = field(default_factory=set)

    @property
    def capabilities(self) -> Capabilities:
        """Samples do not repeat, and weights are verl's own business."""
        return Capabilities(seeds=False, company=False, weights=False, abort=False)

    @property
    def weight_version(self) -> int:
        """The newest version that answered."""
        return max(self.versions, default=0)

    def sample(self, asked: Sequence[Asked], settings: dict[str, Any]) -> list[Completion]:
        """Return a completion for each, in order."""

        async def together() -> list[Completion]:
            return list(await asyncio.gather(*(self._ask(one, settings) for one in asked)))

        return asyncio.run_coroutine_threadsafe(together(), self.events).result()

    def load_weights(self, weights: Iterable[tuple[str, Any]], *, version: int | None = None) -> None:
        """Raise: verl's trainer updates its servers itself."""
        raise Unsupported("verl's trainer gives its servers their weights: wanted no load_weights")

    def load_adapter(self, folder: Path, *, version: int) -> None:
        """Raise: verl's trainer updates its servers itself."""
        raise Unsupported("verl's trainer gives its servers their weights: wanted no load_adapter")

    def abort(self) -> None:
        """Raise: verl's trainer pauses its servers itself."""
        raise Unsupported("verl's trainer pauses its servers: wanted no abort")

    async def _ask(self, one: Asked, settings: dict[str, Any]) -> Completion:
        # verl asks its server for the log-probability of the sampled token where this is true.
        sampling = {**settings, "max_tokens": one.max_tokens, "logprobs": True}
        said = await self.client.generate(request_id=self.uid, prompt_ids=list(one.prompt), sampling_params=sampling)
        logprobs = said.log_probs or ()
        if len(logprobs) != len(said.token_ids):
            raise EngineFailed(f"verl's server gave {len(logprobs)} log-probabilities for {len(said.token_ids)} tokens")
        known = [said.extra_fields.get(name) for name in ("min_global_steps", "max_global_steps")]
        self.versions.update(int(step) for step in known if step is not None)
        reason = "abort" if said.stop_reason == "aborted" else "stop"
        return Completion(tuple(said.token_ids), tuple(logprobs), reason)  # type: ignore[arg-type]
