"""Warm start: supervised steps on given episodes before a run begins.

The result is a model folder next to the run's folder. Critic, reference and adapter of the run all begin from it, and a
run that was interrupted before its first checkpoint uses it again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.models.language_model import LanguageModel, load_policy, pick_device, save_policy, stop_ids
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.teaching.base_recipe import WordRecipe
from tsr_gym.agents.teaching.imitation import Exchange, Row, imitate_rows
from tsr_gym.errors import ConfigError, shown
from tsr_gym.files import write_whole
from tsr_gym.records import read_records

MARKER = "warm_start.json"
# Share of the learning rate that is left at the last step.
_FINAL = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """Settings of a warm start.

    Attributes:
        episodes: File of the episodes to imitate.
        steps: Optimizer steps.
        lr: Learning rate at the beginning.
        batch: Rows per step.
        seed: Seed of the batches.
        env: Gymnasium id or short name of the run's environment, whose prompts encode messages.
        task: Settings of the environment.
        model: Settings of the model.
    """

    episodes: Path
    steps: int
    lr: float
    batch: int
    seed: int
    env: str
    task: TaskConfig
    model: ModelConfig


def warm_started(settings: WarmStart, model_dir: Path, folder: Path) -> Path:
    """Train a model on the episodes, unless an earlier call did, and return the folder of the result.

    Args:
        settings: Episodes, steps and rates.
        model_dir: Folder of the language model before the warm start.
        folder: Folder of the model after it.

    Raises:
        ConfigError: The file is missing or damaged, or an episode does not fit the model.
    """
    source = settings.episodes
    if not source.is_file():
        raise ConfigError(f"warm_start: wanted a file of episodes, {source} is not a file")
    # An earlier result is used again only if it is of the same episodes, model and numbers.
    about = {
        "file": str(source),
        "digest": blake2b(source.read_bytes(), digest_size=16).hexdigest(),
        "model": str(model_dir.absolute()),
        "steps": settings.steps,
        "lr": settings.lr,
        "batch": settings.batch,
        "seed": settings.seed,
    }
    if not _is_of(folder, about):
        write_whole(folder, MARKER, lambda empty: _write(settings, model_dir, about, empty))
    return folder


def _is_of(folder: Path, about: Mapping[str, Any]) -> bool:
    try:
        return bool(json.loads((folder / MARKER).read_text()) == about)
    except (OSError, ValueError):
        return False


def _write(settings: WarmStart, model_dir: Path, about: Mapping[str, Any], folder: Path) -> None:
    """Train on the episodes and write the model, then the marker, which shows that the folder is complete."""
    policy = load_policy(model_dir, device=pick_device(settings.model.device))
    player = ModelPlayer(settings.env, settings.task, settings.model, policy)
    chat = player.chat_about(player.pool(settings.task.train_split).base, temperature=settings.model.temperature)
    records = read_records(settings.episodes, error=ConfigError)
    rows = warm_rows(records, chat, stop_ids(policy, chat.prompt.stop))
    longest, context = max(len(row.ids) for row in rows), int(policy.model.config.max_position_embeddings)
    if longest > context:
        raise ConfigError(
            f"{settings.episodes}: an episode has {longest} tokens, the model's context {context}: leave it out"
        )
    recipe = WordRecipe(batch=settings.batch, seed=settings.seed)
    no_exchange = Exchange(len(policy.tokenizer), (), 0.0)
    imitate_rows(policy.model, rows, recipe, exchange=no_exchange, steps=settings.steps, lr=settings.lr, final=_FINAL)
    policy.card.about["warm_start"] = {**about, "rows": len(rows)}
    save_policy(LanguageModel(*policy), folder)
    (folder / MARKER).write_text(json.dumps(about))


def warm_rows(records: Sequence[Mapping[str, Any]], chat: ChatPolicy, ends: Sequence[int]) -> list[Row]:
    """Return episodes as rows to imitate: the tokens that the run's own policy would have read and answered.

    Args:
        records: Records with ``messages`` of ``role`` and ``content``, or with ``input_ids`` and ``mask`` of tokens to
            use unchanged.
        chat: The run's policy. Its tokenizer and template encode messages, its history decides how many earlier turns a
            row repeats.
        ends: Ids that end an answer.

    Raises:
        ConfigError: A record has neither form, or the chat template rewrites earlier answers.
    """
    rows: list[Row] = []
    for number, record in enumerate(records):
        try:
            rows += _rows(record, chat, ends)
        except (ConfigError, KeyError, TypeError, ValueError) as error:
            expected = "messages of role and content, or input_ids and mask"
            raise ConfigError(f"record {number} of the warm start: wanted {expected}, got {error}") from error
    return rows


def _rows(record: Mapping[str, Any], chat: ChatPolicy, ends: Sequence[int]) -> list[Row]:
    if "messages" not in record:
        ids, mask = np.array(record["input_ids"], dtype=np.int64), np.array(record["mask"]) > 0
        if len(ids) != len(mask) or not mask[1:].any() or not 0 <= ids.min() <= ids.max() < len(chat.tokenizer):
            raise ValueError(f"{len(ids)} ids and a mask of {len(mask)}, {int(mask.sum())} of them to learn")
        return [Row(ids, mask)]
    messages = [{name: str(message[name]) for name in ("role", "content")} for message in record["messages"]]
    answers = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if not answers:
        raise ValueError("messages without an answer")
    if chat.history.turns is None:
        return [_encoded(messages[: answers[-1] + 1], chat, ends, first=0)]
    system = [message for message in messages[:1] if message["role"] == "system"]
    begins = [len(system), *(answer + 1 for answer in answers)]
    return [
        _encoded([*system, *messages[begins[chat.history.first(turn)] : answer + 1]], chat, ends, first=-1)
        for turn, answer in enumerate(answers)
    ]


def _encoded(messages: list[dict[str, str]], chat: ChatPolicy, ends: Sequence[int], *, first: int) -> Row:
    """Return messages as a row in which the answers from number `first` on are learned.

    The text between two answers is encoded as a whole, as in `ChatPolicy`, because tokens may span the template's
    parts. The token that ends an answer belongs to the answer.
    """
    tokenizer, forced = chat.tokenizer, chat.prompt.forced
    ids: list[int] = []
    mask: list[bool] = []
    learned, encoded = False, ""

    def render(part: list[dict[str, str]], ask: bool) -> str:
        return str(tokenizer.apply_chat_template(part, tokenize=False, add_generation_prompt=ask))

    def show(text: str) -> None:
        nonlocal encoded
        if not text.startswith(encoded):
            raise ConfigError("a chat template that rewrites earlier messages: it cannot carry an episode")
        new = tokenizer(text[len(encoded) :], add_special_tokens=False)["input_ids"]
        # The template writes the token that ends the answer before this text, unless the answer itself ended with one.
        ends_answer = bool(new and ids) and new[0] in ends and ids[-1] not in ends
        ids.extend(new)
        mask.extend([ends_answer and learned, *[False] * (len(new) - 1)] if new else [])
        encoded = text

    answers = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    for number, place in enumerate(answers):
        answer = messages[place]["content"]
        begun = forced if answer.startswith(forced) else ""
        show(render(messages[:place], True) + begun)
        new = tokenizer(answer.removeprefix(begun), add_special_tokens=False)["input_ids"]
        learned = number >= range(len(answers))[first]
        ids.extend(new)
        mask.extend([learned] * len(new))
        encoded += answer.removeprefix(begun)
    show(render(messages, False))
    last = max((place for place, is_learned in enumerate(mask) if is_learned), default=0)
    if last == 0:
        raise ValueError(f"answers without a token: {shown(messages[answers[-1]])}")
    return Row(np.array(ids[: last + 1]), np.array(mask[: last + 1]))
