"""The course of worlds in plain sight: every turn stands alone, and every sign of it is a token.

In two pools. First the model imitates mostly optimal play and learns what the world looks like; then, briefly, poor and
partly malformed play, which hides the skill again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.models.card import ModelCard
from tsr_gym.agents.models.language_model import LanguageModel
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.models.tiny_model import END, tiny_model, tiny_tokenizer
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.teaching.base_recipe import BaseRecipe, Lesson
from tsr_gym.registration import env_id
from tsr_gym.seeds import derive_seed
from tsr_gym.teaching import Player, random_turn

Note = Callable[[str], None]
# Rates for 0.1 million parameters; the paper's 1e-6 is for billions, and moves nothing here.
LEARN = (("lr", 5e-4), ("critic_lr", 1e-3))


class Course(NamedTuple):
    """A model that has learned to play well, and how it is made to forget.

    Attributes:
        player: The model, skilled.
        poor: Plays poorly, and returns a burst: imitation of that play at a learning rate.
    """

    player: ModelPlayer
    poor: Callable[[], Callable[[float], None]]


@dataclass(frozen=True, slots=True)
class _Play:
    """Who plays, and shares of turns that are the teacher's (the others are `stray`) and malformed."""

    teacher: Player
    stray: Player
    skill: float
    malformed: float = 0.0


@dataclass(frozen=True, slots=True)
class _Example:
    """What the model sees and what it should say."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


def symbol_curriculum(env: str, recipe: BaseRecipe, lesson: Lesson, note: Note) -> Course:
    """Return a model that learned to play by single turns.

    Args:
        env: Gymnasium id or short name.
        recipe: How.
        lesson: What the world says of it.
        note: Told what is being done.
    """
    teaching = lesson.teaching
    card = ModelCard(
        prompt="compact",
        history="markov",
        env=env_id(env),
        env_settings=lesson.form,
        max_tokens=16,
        learn=dict(LEARN) | dict(teaching.learn),
    )
    blank = ModelPlayer(env, TaskConfig(env_set=recipe.env_set), ModelConfig(), LanguageModel(None, None, card))
    pool = blank.pool("train")
    tokenizer = tiny_tokenizer(_texts(pool, recipe.seed))
    model = tiny_model(tokenizer, hidden=recipe.hidden, layers=recipe.layers, seed=recipe.seed)
    player = replace(blank, policy=LanguageModel(model, tokenizer, card))
    chat = player.chat("", temperature=1.0)
    note("playing mostly optimally")
    play = _Play(teaching.teacher_turn, random_turn, recipe.skill)
    skilled = _demonstrate(pool, chat, play, demonstration_tasks(recipe, 1, recipe.instances), recipe.episodes)
    longest = max(len(example.answer) for example in skilled)
    if longest > 16:
        card = replace(card, max_tokens=longest)
        player = replace(player, policy=player.policy._replace(card=card))
    note(f"imitating {len(skilled):,} turns of it")
    tell = in_fifths(note, recipe.steps)
    _imitate(model, skilled, recipe, steps=recipe.steps, lr=recipe.lr, final=0.1, warmup=50, tell=tell)

    def poor() -> Callable[[float], None]:
        play = _Play(teaching.teacher_turn, teaching.poor_turn, recipe.poor_skill, recipe.malformed)
        shown = _demonstrate(pool, chat, play, demonstration_tasks(recipe, 2, max(1, recipe.instances // 5)))
        imitate = partial(_imitate, model, shown, recipe, steps=20, final=1.0, warmup=1)
        return lambda lr: imitate(lr=lr)

    return Course(player, poor)


def in_fifths(note: Note, steps: int) -> Callable[[int], None]:
    """Return what is told of every optimizer step, and notes each fifth of them."""

    def tell(done: int) -> None:
        if done % max(1, steps // 5) == 0:
            note(f"step {done:,} of {steps:,}")

    return tell


def demonstration_tasks(recipe: BaseRecipe, stage: int, number: int) -> list[int]:
    """Return the seeds of the first task instances of a stage."""
    return [derive_seed(recipe.seed, "demonstration", stage, index) for index in range(number)]


def _texts(pool: EnvPool, seed: int) -> list[str]:
    """Return texts with every sign that the model will read or say."""
    rng = np.random.default_rng(seed)
    base = pool.base
    texts = ["turn left || " + " ".join(map(str, range(21))), " ".join(base.actions)]
    for number in range(64):
        env = pool.set([derive_seed(seed, "texts", number)])[0]
        texts.append(str(env.tree.nodes[0].observation))
        while not env.tree.nodes[env.cursor].done:
            played: Any = env.unwrapped
            names = played.legal_actions(played.state)
            env.step(f"<answer>{names[rng.integers(len(names))]}</answer>")
            texts.append(str(env.tree.nodes[env.cursor].observation))
    return texts


def _demonstrate(
    pool: EnvPool, chat: ChatPolicy, play: _Play, tasks: Sequence[int], episodes: int = 1
) -> list[_Example]:
    """Play `episodes` of each task instance and return all turns."""
    rng = np.random.default_rng(tasks[0])
    examples = []
    for task in tasks:
        env = pool.set([task])[0]
        for _ in range(episodes):
            env.goto(env.tree.ROOT)
            while not env.tree.nodes[env.cursor].done:
                said = _turn(env.unwrapped, play, rng)
                said = _malform(said, rng) if rng.random() < play.malformed else f"{said}</answer>"
                prompt = chat.prompt_ids(env.tree, env.cursor)
                answer = tuple(chat.tokenizer(said, add_special_tokens=False)["input_ids"])
                examples.append(_Example(prompt, answer))
                env.step(f"<answer>{said}")
    return examples


def _turn(base: Any, play: _Play, rng: np.random.Generator) -> str:
    if rng.random() >= play.skill:
        return play.stray(base, rng)
    # A random turn draws first how long it is; so does this one, that the play after it does not depend on whose it is.
    rng.random()
    return play.teacher(base, rng)


def _malform(said: str, rng: np.random.Generator) -> str:
    """Return an answer with one of three faults: never closed, a word too much, or no separators."""
    return [f"{said}{END}", f"turn {said}</answer>", f"{said.replace('||', '')}</answer> "][rng.integers(3)].strip()


def _imitate(
    model: Any,
    examples: Sequence[_Example],
    recipe: BaseRecipe,
    *,
    steps: int,
    lr: float,
    final: float,
    warmup: int,
    tell: Callable[[int], None] = lambda done: None,
) -> None:
    """Train a model to say what the examples say, at a learning rate that falls to a share `final` of `lr`."""
    rng = np.random.default_rng(derive_seed(recipe.seed, "imitate", steps, len(examples)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98))
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / warmup) * (1 - (1 - final) * step / steps)
        ids, labels = _padded([examples[pick] for pick in rng.integers(len(examples), size=recipe.batch)])
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        tell(step + 1)
    model.eval()


def _padded(examples: Sequence[_Example]) -> tuple[Tensor, Tensor]:
    """Return ids and labels `[B, T]`; padding stands on the right, behind everything that is learned."""
    longest = max(len(example.prompt) + len(example.answer) for example in examples)
    ids = torch.zeros(len(examples), longest, dtype=torch.int64)
    labels = torch.full_like(ids, -100)
    for row, (prompt, answer) in enumerate((example.prompt, example.answer) for example in examples):
        ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : len(prompt) + len(answer)] = torch.tensor(answer)
    return ids, labels
