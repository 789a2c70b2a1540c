"""Settings of a language model and of its low-rank matrices; torch-free."""

from dataclasses import dataclass
from typing import Literal

from tsr_gym.agents.policies.engine import find_engine
from tsr_gym.agents.policies.prompts import History
from tsr_gym.errors import ConfigError
from tsr_gym.sections import check_choices, check_numbers, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which language model, and how it speaks."""

    model: str = setting("default", metavar="FOLDER")
    """Folder of a local Hugging Face model; default builds the small embedded model of the environment."""
    engine: str = setting("transformers", metavar="{transformers,vllm,vllm-server,CALL}")
    """Sampler of the same weights: transformers (the model itself), vllm (in this process), vllm-server (vLLM's own
    server) or package.module:name of yours; in eval also openai, a server with OpenAI's API."""
    engine_url: str | None = setting(None, metavar="URL")
    """vLLM's own server, where it runs already on this machine; None starts one that ends with this process."""
    engine_gib: float = 1.0
    """Memory of vLLM's keys and values, in GiB."""
    prompt: Literal["auto", "paper", "compact", "plain", "words"] = "auto"
    """Words around observations. auto: the one in the model folder's tsr_gym.json, else paper; for an environment
    that defines a protocol plain, which adds none, unless the model was made for words."""
    history: str = setting("auto", metavar="{auto,full,markov,window(K)}")
    """What a prompt repeats: full, markov, window(k), or auto."""
    max_tokens: int = 400
    """Longest answer (paper's code: 400)."""
    temperature: float = 1.0
    """Of sampling in training (released code: 1.0)."""
    device: str = setting("auto", metavar="{auto,cpu,cuda,cuda:1,...}")
    """cpu, cuda, cuda:1 ...; auto takes a GPU where there is one."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of computing; parameters stay in float32. auto: bfloat16 on a GPU, float32 on a CPU."""
    threads: int = 1
    """Threads of the CPU; 1 makes runs repeat bit for bit."""
    max_batch: int = 512
    """Most samples that are generated side by side."""

    def __post_init__(self) -> None:
        check_choices(self)
        find_engine(self.engine)
        check_numbers(self, "max_tokens", "threads", "max_batch", least=1)
        check_numbers(self, "temperature", "engine_gib", above=0)
        if self.history != "auto":
            History.parse(self.history)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
    """Low-rank adaptation (arXiv 2106.09685): to a frozen weight W is added ``alpha / rank * B A``, which trains.

    There is no dropout in it: a learner keeps all dropout off, so that a ratio compares the policy with itself.

    Attributes:
        rank: Columns of B and rows of A.
        alpha: The product counts ``alpha / rank`` times.
        targets: Names of layers as they end, such as ``("q_proj", "v_proj")``; ``"all-linear"`` for every linear layer
            but the output layer.
        seed: Of A, which begins random; B begins at zero.

    Raises:
        ConfigError: A number is impossible, or no layer is named.
    """

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] | str = "all-linear"
    seed: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, "rank", least=1)
        check_numbers(self, "alpha", above=0)
        if not self.targets or (isinstance(self.targets, str) and self.targets != "all-linear"):
            raise ConfigError(f"wanted LoRA targets as a tuple of names, or all-linear, got {self.targets!r}")
