"""The curriculum of worlds of symbols: every turn stands alone, and every symbol of the observation is a token.

It has two pools of turns. The model first imitates mostly optimal play and learns what the world looks like; then it
imitates poor and partly malformed play, which hides the skill again.
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
from tsr_gym.agents.models.tiny_model import tiny_model
from tsr_gym.agents.models.tokenizer import END, tiny_tokenizer
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.teaching.base_recipe import LEARN, BaseRecipe, TaughtWorld
from tsr_gym.registration import env_id
from tsr_gym.seeds import derive_seed
from tsr_gym.teaching import Player, random_turn

Note = Callable[[str], None]
_MAX_TOKENS = 16
# Optimizer steps of a burst of poor play; success is measured after each burst.
BURST = 20


class Skilled(NamedTuple):
    """A model that has learned to play well, with the means to hide its skill.

    Attributes:
        player: The model.
        poor_play: Plays poor episodes and returns a burst: a function that imitates them at a learning rate.
    """

    player: ModelPlayer
    poor_play: Callable[[], Callable[[float], None]]


@dataclass(frozen=True, slots=True)
class _Play:
    """Two players, the share of turns that are the teacher's (the others are `stray`'s), and of malformed turns."""

    teacher: Player
    stray: Player
    skill: float
    malformed: float = 0.0


@dataclass(frozen=True, slots=True)
class _Example:
    """Tokens that the model sees, and tokens to answer."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


def symbol_curriculum(env: str, recipe: BaseRecipe, world: TaughtWorld, note: Note) -> Skilled:
    """Return a model that learned to play from single turns.

    Args:
        env: Gymnasium id or short name.
        recipe: Sizes, steps and rates.
        world: The environment's teaching.
        note: Called with a line of text at each stage.
    """
    teaching = world.teaching
    card = ModelCard(
        prompt="compact",
        history="markov",
        env=env_id(env),
        env_settings=world.env_settings,
        max_tokens=_MAX_TOKENS,
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
    examples = _demonstrate(pool, chat, play, demonstration_tasks(recipe, 1, recipe.instances), recipe.episodes)
    longest = max(len(example.answer) for example in examples)
    if longest > _MAX_TOKENS:
        card = replace(card, max_tokens=longest)
        player = replace(player, policy=player.policy._replace(card=card))
    note(f"imitating {len(examples):,} turns of it")
    on_step = in_fifths(note, recipe.steps)
    _imitate(model, examples, recipe, steps=recipe.steps, lr=recipe.lr, final=0.1, warmup=50, on_step=on_step)

    def poor_play() -> Callable[[float], None]:
        play = _Play(teaching.teacher_turn, teaching.poor_turn, recipe.poor_skill, recipe.malformed)
        examples = _demonstrate(pool, chat, play, demonstration_tasks(recipe, 2, max(1, recipe.instances // 5)))
        imitate = partial(_imitate, model, examples, recipe, steps=BURST, final=1.0, warmup=1)
        return lambda lr: imitate(lr=lr)

    return Skilled(player, poor_play)


def in_fifths(note: Note, steps: int) -> Callable[[int], None]:
    """Return a function to call with the number of steps done, which notes every fifth of them."""

    def on_step(done: int) -> None:
        if done % max(1, steps // 5) == 0:
            note(f"step {done:,} of {steps:,}")

    return on_step


def demonstration_tasks(recipe: BaseRecipe, stage: int, number: int) -> list[int]:
    """Return the seeds of the first task instances of a stage."""
    return [derive_seed(recipe.seed, "demonstration", stage, index) for index in range(number)]


def _texts(pool: EnvPool, seed: int) -> list[str]:
    """Return texts that hold every symbol that the model will read or write."""
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
                text = _turn(env.unwrapped, play, rng)
                text = _malform(text, rng) if rng.random() < play.malformed else f"{text}</answer>"
                prompt = chat.prompt_ids(env.tree, env.cursor)
                answer = tuple(chat.tokenizer(text, add_special_tokens=False)["input_ids"])
                examples.append(_Example(prompt, answer))
                env.step(f"<answer>{text}")
    return examples


def _turn(base: Any, play: _Play, rng: np.random.Generator) -> str:
    if rng.random() >= play.skill:
        return play.stray(base, rng)
    # A random turn first draws its length. The teacher's turn draws a number as well, so that both leave the generator
    # in the same state, and later turns do not depend on the player of this one.
    rng.random()
    return play.teacher(base, rng)


def _malform(text: str, rng: np.random.Generator) -> str:
    """Return an answer with one of three faults: not closed, an extra word, or no separators."""
    return [f"{text}{END}", f"turn {text}</answer>", f"{text.replace('||', '')}</answer> "][rng.integers(3)].strip()


def _imitate(
    model: Any,
    examples: Sequence[_Example],
    recipe: BaseRecipe,
    *,
    steps: int,
    lr: float,
    final: float,
    warmup: int,
    on_step: Callable[[int], None] = lambda done: None,
) -> None:
    """Train a model on the examples' answers, at a learning rate that falls to a share `final` of `lr`."""
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
        on_step(step + 1)
    model.eval()


def _padded(examples: Sequence[_Example]) -> tuple[Tensor, Tensor]:
    """Return ids and labels `[B, T]`, padded on the right; only answers have labels."""
    longest = max(len(example.prompt) + len(example.answer) for example in examples)
    ids = torch.zeros(len(examples), longest, dtype=torch.int64)
    labels = torch.full_like(ids, -100)
    for row, (prompt, answer) in enumerate((example.prompt, example.answer) for example in examples):
        ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : len(prompt) + len(answer)] = torch.tensor(answer)
    return ids, labels
