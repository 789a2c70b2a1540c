"""Settings of a language model and of its low-rank matrices, and the card in its folder; torch-free."""

import json
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from tsr_gym.agents.policies.engine import find_engine
from tsr_gym.agents.policies.prompts import History
from tsr_gym.errors import CheckpointError, ConfigError, NothingThere
from tsr_gym.sections import check_choices, check_numbers, setting

CARD = "tsr_gym.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """The settings that a model was made for.

    Attributes:
        prompt: Name of the prompt.
        history: Name of the history.
        env: Environment that it was made for, None for any.
        env_settings: Settings of that environment.
        max_tokens: Longest useful answer, None for no limit.
        learn: Settings of training that fit it, by the names of their flags.
        about: How it was made.
        spelling: A text, and the ids that the tokenizer made of it when the model was saved.
    """

    prompt: str = "paper"
    history: str = "full"
    env: str | None = None
    env_settings: dict[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None
    learn: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    spelling: dict[str, list[int]] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the card into a model's folder."""
        (folder / CARD).write_text(json.dumps(asdict(self), indent=2))

    @classmethod
    def load(cls, folder: Path) -> "ModelCard":
        """Return a folder's card, the default one where it has none.

        Raises:
            CheckpointError: The card is damaged.
        """
        if not (folder / CARD).exists():
            return cls()
        try:
            return cls(**json.loads((folder / CARD).read_text()))
        except (ValueError, TypeError) as error:
            raise CheckpointError(
                f"{folder / CARD}: not a model card ({error}): delete it, or build the model again"
            ) from error


def check_model_folder(folder: Path) -> None:
    """Check that a folder holds a Hugging Face model without code; the error names a similar folder that does.

    Raises:
        NothingThere: There is no ``config.json``.
        CheckpointError: The model or its tokenizer needs code that lies next to it.
    """
    for name in ("config.json", "tokenizer_config.json"):
        if "auto_map" in _read_json(folder / name):
            raise CheckpointError(
                f"{folder}: {name} has auto_map: the model brings Python code, which is never run; choose "
                "another model, or delete auto_map if transformers has this architecture itself"
            )
    if (folder / "config.json").is_file():
        return
    neighbours = [path.parent.name for path in folder.parent.glob("*/config.json")]
    close = get_close_matches(folder.name, neighbours, 1)
    hint = f"; did you mean {folder.parent / close[0]}?" if close else ""
    raise NothingThere(f"{folder}: wanted the folder of a Hugging Face model with config.json, found none{hint}")


def _read_json(file: Path) -> dict[str, Any]:
    """Return the object in a file; an empty one where it cannot be read, which the loading of the model reports."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


# Base models that come with the package; docs/does_search_pay.md describes S1.
SHIPPED = Path(__file__).parent / "shipped"


def model_path(model: str) -> str:
    """Return the folder of a shipped model that a name stands for; other texts are returned unchanged."""
    names = {path.name for path in SHIPPED.iterdir()}
    return str(SHIPPED / model) if model in names and not Path(model).exists() else model


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which language model, and how it speaks."""

    model: str = setting("default", metavar="FOLDER")
    """Folder of a local Hugging Face model; default builds the small embedded model of the environment; S1 is the
    package's base model for Sokoban rooms of 10 to 16 moves."""
    engine: str = setting("auto", metavar="{auto,trie,transformers,vllm,vllm-server,CALL}")
    """Sampler of the same weights: trie (the model itself, for small Qwen2 and Llama models on a CPU), transformers
    (the model itself), auto (trie where it is faster), vllm (in this process), vllm-server (vLLM's own server) or
    package.module:name of yours; in eval also openai, a server with OpenAI's API."""
    engine_url: str | None = setting(None, metavar="URL")
    """vLLM's own server, where it runs already on this machine; None starts one that ends with this process."""
    engine_gib: float = 1.0
    """Memory of vLLM's keys and values, in GiB."""
    prompt: Literal["auto", "paper", "compact", "plain", "words", "tools"] = "auto"
    """Words around observations. auto: the one in the model folder's tsr_gym.json, else paper; for an environment
    that defines a protocol plain, which adds none, unless the model was made for words. tools: the model calls the
    tools of the environment in the form of its own chat template."""
    tool_calls: Literal["auto", "hermes", "llama", "mistral"] = "auto"
    """Form of the calls of prompt tools: that of Hermes and Qwen, of Llama 3, of Mistral; auto reads it from the chat
    template."""
    history: str = setting("auto", metavar="{auto,full,without_thoughts,markov,window(K)}")
    """What a prompt repeats: full, without_thoughts (full, but of earlier answers what the model's chat template keeps,
    for models that think), markov, window(k), or auto."""
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
        object.__setattr__(self, "model", model_path(self.model))
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
