"""Imitation of whole episodes in words, the drill in copying before it, and the warm start of a run.

A row is an episode, or a single turn if prompts show only the present state. The loss covers the player's answers
alone; logits are computed at their positions and nowhere else. A warm start makes a model folder next to the run's
folder: critic, reference and adapter of the run all begin from it, and a run that was interrupted before its first
checkpoint uses it again.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.models.language_model import LanguageModel, load_policy, pick_device, save_policy, stop_ids
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.chat_policy import ChatPolicy, result_fields
from tsr_gym.agents.teaching.base_recipe import WordRecipe
from tsr_gym.errors import ConfigError, shown
from tsr_gym.files import folder_digest, write_whole
from tsr_gym.records import read_records
from tsr_gym.registration import env_id
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Tree

# Fewest and most words in a row of the drill, and rows in a batch.
_SHORTEST, _LONGEST, _DRILLS = 6, 20, 64
_WARMUP = 20
# Batches that are drawn together, sorted by length and split, to keep padding small.
_DEALT = 8
# Share of the learning rate that is left at the last step of a fit.
_FINAL = 0.1
# Steps over which the accuracy of copying is averaged.
_JUDGED = 5


class Answer(NamedTuple):
    """The answer of a turn.

    Attributes:
        ids: Its tokens.
        learned: Whether it is imitated; otherwise it is only shown.
    """

    ids: Sequence[int]
    learned: bool = True


class Row(NamedTuple):
    """A sequence of tokens to train on.

    Attributes:
        ids: `[T]` tokens.
        learned: `[T]` bool, True at tokens of answers that are imitated.
    """

    ids: np.ndarray
    learned: np.ndarray


def rows_of(tree: Tree, end: int, chat: ChatPolicy, answers: Sequence[Answer]) -> list[Row]:
    """Return an episode as rows: a single row if each prompt extends the one before it, else a row per turn.

    Args:
        tree: Tree of the episode.
        end: Node at which the episode ended.
        chat: Policy whose prompts are shown.
        answers: Answer of each turn.
    """
    path = [*tree.path(end)]
    turns = [_row(chat.prompt_ids(tree, node), answer) for node, answer in zip(path[:-1], answers, strict=True)]
    if not chat.history.grows:
        return [row for row, answer in zip(turns, answers, strict=True) if answer.learned]
    whole = Row(turns[-1].ids, np.zeros(len(turns[-1].ids), dtype=bool))
    # Each prompt extends the one before it, so positions are the same in all turns.
    for row in turns:
        whole.learned[: len(row.learned)] |= row.learned
    return [whole]


def _row(prompt: Sequence[int], answer: Answer) -> Row:
    return Row(np.array([*prompt, *answer.ids]), np.array([False] * len(prompt) + [answer.learned] * len(answer.ids)))


def fit_rows(model: Any, rows: Sequence[Row], *, steps: int, lr: float, batch: int, seed: int) -> None:
    """Train a model on the learned tokens of rows, at a learning rate that falls to a tenth.

    Args:
        model: A causal language model, changed in place.
        rows: Rows to imitate.
        steps: Optimizer steps.
        lr: Learning rate at the beginning.
        batch: Rows per step.
        seed: Seed of the batches.
    """
    recipe, no_exchange = WordRecipe(batch=batch, seed=seed), Exchange(0, (), 0.0)
    imitate_rows(model, rows, recipe, exchange=no_exchange, steps=steps, lr=lr, final=_FINAL)


def imitate_rows(
    model: Any,
    rows: Sequence[Row],
    recipe: WordRecipe,
    *,
    exchange: "Exchange",
    steps: int,
    lr: float,
    final: float,
    on_step: Callable[[int], None] = lambda done: None,
) -> None:
    """Train a model on the learned tokens of rows, at a learning rate that falls to a share `final` of `lr`.

    Args:
        model: A causal language model, changed in place.
        rows: Rows to imitate.
        recipe: Recipe with the batch size and the seed.
        exchange: Exchange of words, drawn again for each row of a batch.
        steps: Optimizer steps.
        lr: Learning rate.
        final: Share of the learning rate that is left at the end.
        on_step: Called with the number of steps done.
    """
    rng = np.random.default_rng(derive_seed(recipe.seed, "imitate", steps, len(rows)))
    dealt = _deal(rows, recipe.batch, rng)
    _train(model, lambda: [exchange(row, rng) for row in next(dealt)], steps=steps, lr=lr, final=final, on_step=on_step)


class Exchange:
    """Exchange some words for one another throughout a row, so that the model cannot memorise the words themselves.

    Args:
        vocabulary: Size of the vocabulary.
        words: Ids of the words that may be exchanged.
        p: Probability of an exchange, for each row.
    """

    def __init__(self, vocabulary: int, words: Sequence[int], p: float) -> None:
        self._table = np.arange(vocabulary)
        self._words = np.array(words, dtype=np.int64)
        self._p = p if len(words) else 0.0

    def __call__(self, row: Row, rng: np.random.Generator) -> Row:
        """Return the row itself, or a copy with permuted words."""
        if rng.random() >= self._p:
            return row
        table = self._table.copy()
        table[self._words] = rng.permutation(self._words)
        return Row(table[row.ids], row.learned)


def drill_copying(model: Any, words: Sequence[int], recipe: WordRecipe, *, around: tuple[int, int, int]) -> int:
    """Train a model to repeat random words until it copies correctly, and return the number of steps.

    Args:
        model: A causal language model, changed in place.
        words: Ids to copy.
        recipe: Recipe with the seed, the learning rate, the limit of steps and the required accuracy.
        around: Ids before the words, between the words and their copy, and at the end.

    Raises:
        ConfigError: The model did not learn to copy within the recipe's steps.
    """
    rng = np.random.default_rng(derive_seed(recipe.seed, "drill"))
    vocabulary = np.array(words)
    accuracies: list[float] = []

    def rows() -> list[Row]:
        lengths = rng.integers(_SHORTEST, _LONGEST + 1, size=_DRILLS)
        return [_copied(vocabulary[rng.integers(len(vocabulary), size=length)], around) for length in lengths]

    def copies(accuracy: float) -> bool:
        accuracies.append(accuracy)
        return len(accuracies) >= _JUDGED and float(np.mean(accuracies[-_JUDGED:])) >= recipe.copies

    steps = _train(model, rows, steps=recipe.drill_steps, lr=recipe.lr, final=1.0, enough=copies)
    last = float(np.mean(accuracies[-_JUDGED:])) if accuracies else 0.0
    if last < recipe.copies:
        raise ConfigError(
            f"after {steps} steps the model copies {last:.2f} of the words, wanted {recipe.copies}: the world's words "
            f"({len(words)}) may be too many for its width of {recipe.hidden}; raise hidden or drill_steps"
        )
    return steps


def _copied(shown: np.ndarray, around: tuple[int, int, int]) -> Row:
    before, between, after = around
    ids = np.array([before, *shown, between, *shown, after])
    return Row(ids, np.arange(len(ids)) > len(shown) + 1)


def _train(
    model: Any,
    batch: Callable[[], Sequence[Row]],
    *,
    steps: int,
    lr: float,
    final: float,
    enough: Callable[[float], bool] = lambda accuracy: False,
    on_step: Callable[[int], None] = lambda done: None,
) -> int:
    """Take at most `steps` optimizer steps and return their number; stop early if `enough(accuracy)` is true."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98))
    model.train()
    done = 0
    for done in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, done / _WARMUP) * (1 - (1 - final) * done / steps)
        loss, accuracy = _loss(model, *_padded(batch()))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        on_step(done)
        if enough(accuracy):
            break
    model.eval()
    return done


def _loss(model: Any, ids: Tensor, learned: Tensor) -> tuple[Tensor, float]:
    """Return the cross-entropy of the learned tokens, and the share of them that the model predicts."""
    ids, learned = ids.to(model.device), learned.to(model.device)
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    # A token is predicted from the position before it.
    logits: Tensor = model.get_output_embeddings()(hidden[:, :-1][learned[:, 1:]])
    targets = ids[:, 1:][learned[:, 1:]]
    accuracy = (logits.detach().argmax(-1) == targets).float().mean()
    return torch.nn.functional.cross_entropy(logits, targets), float(accuracy)


def _padded(rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Return ids and the mask of learned tokens `[B, T]`, padded on the right, after all learned tokens."""
    longest = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.int64)
    learned = torch.zeros(len(rows), longest, dtype=torch.bool)
    for number, row in enumerate(rows):
        ids[number, : len(row.ids)] = torch.from_numpy(row.ids)
        learned[number, : len(row.ids)] = torch.from_numpy(row.learned)
    return ids, learned


def _deal(rows: Sequence[Row], batch: int, rng: np.random.Generator) -> Iterator[list[Row]]:
    """Yield batches of rows of about the same length, in random order."""
    while True:
        picks = sorted(rng.integers(len(rows), size=batch * _DEALT), key=lambda pick: len(rows[pick].ids))
        for start in rng.permutation(_DEALT) * batch:
            yield [rows[pick] for pick in picks[start : start + batch]]


MARKER = "warm_start.json"


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
    # An earlier result is used again only if it is of the same episodes, model, prompts and numbers.
    task, model = settings.task, settings.model
    about = {
        "file": str(source),
        "digest": blake2b(source.read_bytes(), digest_size=16).hexdigest(),
        "model": folder_digest(model_dir),
        "env": env_id(settings.env),
        "task": [task.preset, list(task.env_set), task.train_split],
        "prompt": model.prompt,
        "history": model.history,
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
    fit_rows(policy.model, rows, steps=settings.steps, lr=settings.lr, batch=settings.batch, seed=settings.seed)
    policy.card.about["warm_start"] = {**about, "rows": len(rows)}
    save_policy(LanguageModel(*policy), folder)
    (folder / MARKER).write_text(json.dumps(about))


def warm_rows(records: Sequence[Mapping[str, Any]], chat: ChatPolicy, ends: Sequence[int]) -> list[Row]:
    """Return episodes as rows to imitate: the tokens that the run's own policy would have read and answered.

    Args:
        records: Records with ``messages`` of ``role`` and ``content``, or with ``input_ids`` and ``completion_mask`` of
            tokens to use unchanged.
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
            expected = "messages of role and content, or input_ids and completion_mask"
            raise ConfigError(f"record {number} of the warm start: wanted {expected}, got {error}") from error
    return rows


def _rows(record: Mapping[str, Any], chat: ChatPolicy, ends: Sequence[int]) -> list[Row]:
    if "messages" not in record:
        ids, mask = np.array(record["input_ids"], dtype=np.int64), np.array(record["completion_mask"]) > 0
        if len(ids) != len(mask) or not mask[1:].any() or not 0 <= ids.min() <= ids.max() < len(chat.tokenizer):
            raise ValueError(f"{len(ids)} ids and a mask of {len(mask)}, {int(mask.sum())} of them to learn")
        return [Row(ids, mask)]
    messages = [{name: str(message[name]) for name in ("role", "content")} for message in record["messages"]]
    for answer, message in pairwise(messages):
        if message["role"] == "tool":
            message |= result_fields(chat.tool_called(answer["content"]))
    answers = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if not answers:
        raise ValueError("messages without an answer")
    if chat.history.grows:
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
    tools = [tool.schema for tool in chat.prompt.tools or ()] or None
    ids: list[int] = []
    mask: list[bool] = []
    learned, encoded = False, ""

    def render(part: list[dict[str, str]], ask: bool) -> str:
        return str(tokenizer.apply_chat_template(part, tools=tools, tokenize=False, add_generation_prompt=ask))

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
        # A range turns the number -1 into that of the last answer.
        learned = number >= range(len(answers))[first]
        ids.extend(new)
        mask.extend([learned] * len(new))
        encoded += answer.removeprefix(begun)
    show(render(messages, False))
    last = max((place for place, is_learned in enumerate(mask) if is_learned), default=0)
    if last == 0:
        raise ValueError(f"answers without a token: {shown(messages[answers[-1]])}")
    return Row(np.array(ids[: last + 1]), np.array(mask[: last + 1]))
