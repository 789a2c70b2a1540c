"""Imitation of whole episodes in words, and the drill in copying that comes before it.

A row is an episode, or a single turn if prompts show only the present state. The loss covers the player's answers
alone; logits are computed at their positions and nowhere else.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.teaching.base_recipe import WordRecipe
from tsr_gym.errors import ConfigError
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Tree

# Fewest and most words in a row of the drill, and rows in a batch.
_SHORTEST, _LONGEST, _DRILLS = 6, 20, 64
_WARMUP = 20
# Batches that are drawn together, sorted by length and split, to keep padding small.
_DEALT = 8
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
    if chat.history.turns is not None:
        return [row for row, answer in zip(turns, answers, strict=True) if answer.learned]
    whole = Row(turns[-1].ids, np.zeros(len(turns[-1].ids), dtype=bool))
    # Each prompt extends the one before it, so positions are the same in all turns.
    for row in turns:
        whole.learned[: len(row.learned)] |= row.learned
    return [whole]


def _row(prompt: Sequence[int], answer: Answer) -> Row:
    return Row(np.array([*prompt, *answer.ids]), np.array([False] * len(prompt) + [answer.learned] * len(answer.ids)))


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
