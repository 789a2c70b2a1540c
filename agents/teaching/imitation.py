"""Imitation of whole episodes in words, and the drill in copying that comes before it.

A row is an episode, or a turn where the present state is all that is shown. Only what the player said is learned; the
logits of everything else are never computed.
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

# Words of a drill's row, and its rows.
_SHORTEST, _LONGEST, _DRILLS = 6, 20, 64
_WARMUP = 20
# Batches that are drawn together and dealt out by length, so that little is padding.
_DEALT = 8
# Whether enough is copied is judged over so many steps.
_JUDGED = 5


class Said(NamedTuple):
    """What was said in a turn.

    Attributes:
        ids: Its tokens.
        learned: Whether it is imitated, or only shown.
    """

    ids: Sequence[int]
    learned: bool = True


class Row(NamedTuple):
    """A sequence to imitate.

    Attributes:
        ids: `[T]` tokens.
        said: `[T]` whether the player said it and it is learned.
    """

    ids: np.ndarray
    said: np.ndarray


def rows_of(tree: Tree, end: int, chat: ChatPolicy, said: Sequence[Said]) -> list[Row]:
    """Return an episode as rows: one where prompts grow, else one a turn.

    Args:
        tree: Of the episode.
        end: The node at which it ended.
        chat: Whose prompts are shown.
        said: Each turn's answer.
    """
    path = [*tree.path(end)]
    turns = [_row(chat.prompt_ids(tree, node), answer) for node, answer in zip(path[:-1], said, strict=True)]
    if chat.history.turns is not None:
        return [row for row, answer in zip(turns, said, strict=True) if answer.learned]
    whole = Row(turns[-1].ids, np.zeros(len(turns[-1].ids), dtype=bool))
    for row in turns:
        whole.said[: len(row.said)] |= row.said
    return [whole]


def _row(prompt: Sequence[int], answer: Said) -> Row:
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
    tell: Callable[[int], None] = lambda done: None,
) -> None:
    """Train a model to say what was said, at a learning rate that falls to a share `final` of `lr`.

    Args:
        model: A causal language model, changed in place.
        rows: What to imitate.
        recipe: Of the batch and the seed.
        exchange: Of words, for each row anew.
        steps: Optimizer steps.
        lr: Learning rate.
        final: Share of it that is left at the end.
        tell: Called with the number of steps that are done.
    """
    rng = np.random.default_rng(derive_seed(recipe.seed, "imitate", steps, len(rows)))
    dealt = _deal(rows, recipe.batch, rng)
    _train(model, lambda: [exchange(row, rng) for row in next(dealt)], steps=steps, lr=lr, final=final, tell=tell)


class Exchange:
    """Exchange some words for one another throughout a row, so that the words themselves cannot be learned by heart.

    Args:
        vocabulary: Size of the vocabulary.
        words: Ids of the words that may be exchanged.
        p: Probability that they are.
    """

    def __init__(self, vocabulary: int, words: Sequence[int], p: float) -> None:
        self._table = np.arange(vocabulary)
        self._words = np.array(words, dtype=np.int64)
        self._p = p if len(words) else 0.0

    def __call__(self, row: Row, rng: np.random.Generator) -> Row:
        """Return the row, or the row in other words."""
        if rng.random() >= self._p:
            return row
        table = self._table.copy()
        table[self._words] = rng.permutation(self._words)
        return Row(table[row.ids], row.said)


def drill_copying(model: Any, words: Sequence[int], recipe: WordRecipe, *, around: tuple[int, int, int]) -> int:
    """Train a model to repeat random words until it does, and return the steps that it took.

    Args:
        model: A causal language model, changed in place.
        words: Ids to copy.
        recipe: Of the seed, the rate and the limit.
        around: Ids before what is shown, between it and the copy, and at the end.

    Raises:
        ConfigError: The model did not learn it within the recipe's steps.
    """
    rng = np.random.default_rng(derive_seed(recipe.seed, "drill"))
    vocabulary = np.array(words)
    judged: list[float] = []

    def rows() -> list[Row]:
        lengths = rng.integers(_SHORTEST, _LONGEST + 1, size=_DRILLS)
        return [_copied(vocabulary[rng.integers(len(vocabulary), size=length)], around) for length in lengths]

    def copies(accuracy: float) -> bool:
        judged.append(accuracy)
        return len(judged) >= _JUDGED and float(np.mean(judged[-_JUDGED:])) >= recipe.copies

    steps = _train(model, rows, steps=recipe.drill_steps, lr=recipe.lr, final=1.0, enough=copies)
    last = float(np.mean(judged[-_JUDGED:])) if judged else 0.0
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
    tell: Callable[[int], None] = lambda done: None,
) -> int:
    """Take optimizer steps until there are `steps`, or enough by the accuracy of the last; return how many."""
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
        tell(done)
        if enough(accuracy):
            break
    model.eval()
    return done


def _loss(model: Any, ids: Tensor, said: Tensor) -> tuple[Tensor, float]:
    """Return the cross-entropy of what was said, and the share of it that the model finds most likely."""
    ids, said = ids.to(model.device), said.to(model.device)
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    # A token is predicted from the position before it.
    logits: Tensor = model.get_output_embeddings()(hidden[:, :-1][said[:, 1:]])
    wanted = ids[:, 1:][said[:, 1:]]
    accuracy = (logits.detach().argmax(-1) == wanted).float().mean()
    return torch.nn.functional.cross_entropy(logits, wanted), float(accuracy)


def _padded(rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Return ids and what was said `[B, T]`; padding stands on the right, behind everything that is learned."""
    longest = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.int64)
    said = torch.zeros(len(rows), longest, dtype=torch.bool)
    for number, row in enumerate(rows):
        ids[number, : len(row.ids)] = torch.from_numpy(row.ids)
        said[number, : len(row.ids)] = torch.from_numpy(row.said)
    return ids, said


def _deal(rows: Sequence[Row], batch: int, rng: np.random.Generator) -> Iterator[list[Row]]:
    """Yield batches of rows of about the same length, in random order."""
    while True:
        picks = sorted(rng.integers(len(rows), size=batch * _DEALT), key=lambda pick: len(rows[pick].ids))
        for start in rng.permutation(_DEALT) * batch:
            yield [rows[pick] for pick in picks[start : start + batch]]
