"""ModelCard: the settings that a model was made for, in its folder; torch-free."""

import json
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tsr_gym.errors import CheckpointError

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
    """Check that a folder holds a Hugging Face model; the error names a similar folder that does.

    Raises:
        CheckpointError: There is no ``config.json``.
    """
    if (folder / "config.json").is_file():
        return
    neighbours = [path.parent.name for path in folder.parent.glob("*/config.json")]
    close = get_close_matches(folder.name, neighbours, 1)
    hint = f"; did you mean {folder.parent / close[0]}?" if close else ""
    raise CheckpointError(f"{folder}: wanted the folder of a Hugging Face model with config.json, found none{hint}")
