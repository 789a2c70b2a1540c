"""The course of worlds of words: copying is drilled, then whole episodes of a teacher are imitated, in changing words.

What is hidden afterwards are choices more than form: the poor player's answers are valid.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.models.card import ModelCard
from tsr_gym.agents.models.copying import set_copying_heads
from tsr_gym.agents.models.language_model import LanguageModel
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.models.tiny_model import tiny_model
from tsr_gym.agents.models.word_tokenizer import word_tokenizer
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.runs.base_recipe import Lesson, WordRecipe
from tsr_gym.agents.runs.imitation import Exchange, Row, drill_copying, imitate_rows, rows_of
from tsr_gym.agents.runs.sign_course import LEARN, Course, Note, demonstration_tasks, in_fifths
from tsr_gym.errors import ConfigError
from tsr_gym.registration import env_id
from tsr_gym.teaching import Player, Teaching
from tsr_gym.wrappers import TreeSearchWrapper

# Fewer heads than the usual, so that each is wide enough to tell words apart, and positions that disturb them little.
HEADS, THETA = 2, 1e6
CONTEXT = 4096
# Episodes from which words are collected where the world names none.
_NUM_READ = 256
_FORM = ("<answer>", "</answer>", "turn", *map(str, range(1, 31)))


@dataclass(frozen=True, slots=True)
class _Play:
    """Who plays, shares of turns that are the teacher's and malformed, and which episodes are taken."""

    teaching: Teaching
    skill: float
    malformed: float = 0.0

    @property
    def accepts(self) -> Callable[[Any], bool]:
        """What is worth imitating: of play that is meant to be poor, everything."""
        return self.teaching.accepts if self.skill == 1 else lambda env: True


def word_course(env: str, recipe: WordRecipe, lesson: Lesson, note: Note) -> Course:
    """Return a model that learned to play by whole episodes.

    Args:
        env: Gymnasium id or short name.
        recipe: How.
        lesson: What the world says of it.
        note: Told what is being done.

    Raises:
        ConfigError: The model does not learn to copy, or none of the teacher's episodes is worth imitating.
    """
    teaching = lesson.teaching
    card = ModelCard(
        prompt="words",
        history=teaching.history,
        env=env_id(env),
        env_settings=lesson.form,
        max_tokens=teaching.max_tokens,
        learn=dict(LEARN) | dict(teaching.learn),
    )
    blank = ModelPlayer(env, TaskConfig(env_set=recipe.env_set), ModelConfig(), LanguageModel(None, None, card))
    pool = blank.pool("train")
    tokenizer = word_tokenizer([*_FORM, *(teaching.words or _words(pool, recipe, teaching.teacher_turn))])
    model = tiny_model(
        tokenizer,
        hidden=recipe.hidden,
        layers=recipe.layers,
        heads=HEADS,
        context=CONTEXT,
        theta=THETA,
        seed=recipe.seed,
    )
    player = replace(blank, policy=LanguageModel(model, tokenizer, card))
    if teaching.copying:
        _learn_to_copy(model, tokenizer, teaching, recipe, note)
    note("playing well")
    chat = player.chat_about(pool.base, temperature=1.0)
    tasks = demonstration_tasks(recipe, 1, recipe.instances)
    shown = _demonstrate(pool, chat, _Play(teaching, recipe.skill), tasks, recipe.episodes)
    if not shown:
        raise ConfigError(f"none of {len(tasks)} episodes of {env_id(env)} is worth imitating: see Teaching.accepts")
    note(f"imitating {len(shown)} rows of good play")
    exchange = Exchange(len(tokenizer), _ids(tokenizer, teaching.permutable), teaching.permute)
    tell = in_fifths(note, recipe.steps)
    imitate_rows(model, shown, recipe, exchange=exchange, steps=recipe.steps, lr=recipe.lr, final=0.1, tell=tell)

    def poor() -> Callable[[float], None]:
        play = _Play(teaching, recipe.poor_skill, recipe.malformed)
        tasks = demonstration_tasks(recipe, 2, max(1, recipe.instances // 5))
        rows = _demonstrate(pool, chat, play, tasks, 1)
        return lambda lr: imitate_rows(model, rows, recipe, exchange=exchange, steps=recipe.burst, lr=lr, final=1.0)

    return Course(player, poor)


def _learn_to_copy(model: Any, tokenizer: Any, teaching: Teaching, recipe: WordRecipe, note: Note) -> None:
    set_copying_heads(model, seed=recipe.seed)
    known = set(tokenizer.get_added_vocab().values())
    words = _ids(tokenizer, teaching.permutable) or sorted(known - set(tokenizer.all_special_ids))
    user, assistant = tokenizer.convert_tokens_to_ids(["<user>", "<assistant>"])
    note("learning to copy words")
    steps = drill_copying(model, words, recipe, around=(user, assistant, tokenizer.eos_token_id))
    note(f"copies {len(words)} words after {steps} steps")


def _ids(tokenizer: Any, words: Sequence[str] | frozenset[str]) -> list[int]:
    return list(tokenizer.convert_tokens_to_ids([f" {word}" for word in sorted(words)]))


def _words(pool: EnvPool, recipe: WordRecipe, teacher: Player) -> set[str]:
    """Return the words of some episodes of the teacher."""
    rng = np.random.default_rng(recipe.seed)
    forced, stop = ("", "") if pool.base.reads_tags else ("<answer> ", " </answer>")
    found: set[str] = set()
    for task in demonstration_tasks(recipe, 0, _NUM_READ):
        env = pool.set([task])[0]
        while not env.tree.nodes[env.cursor].done:
            env.step(f"{forced}{teacher(env.unwrapped, rng)}{stop}")
        for node in env.tree.nodes:
            found.update(str(node.observation).split(), node.candidate.text.split())
    return found


def _demonstrate(pool: EnvPool, chat: ChatPolicy, play: _Play, tasks: Sequence[int], episodes: int) -> list[Row]:
    """Play `episodes` of each task instance and return those that are taken."""
    rng = np.random.default_rng(tasks[0])
    rows = []
    for task in tasks:
        env = pool.set([task])[0]
        for _ in range(episodes):
            said = _episode(env, chat, play, rng)
            if play.accepts(env.unwrapped):
                rows += rows_of(env.tree, env.cursor, chat, said)
    return rows


def _episode(env: TreeSearchWrapper, chat: ChatPolicy, play: _Play, rng: np.random.Generator) -> list[list[int]]:
    """Play an episode and return the tokens of every answer."""
    prompt, tokenizer = chat.prompt, chat.tokenizer
    env.goto(env.tree.ROOT)
    answers = []
    while not env.tree.nodes[env.cursor].done:
        player = play.teaching.teacher_turn if rng.random() < play.skill else play.teaching.poor_turn
        said = f" {' '.join(player(env.unwrapped, rng).split())}{prompt.stop}"
        if rng.random() < play.malformed:
            # Never closed.
            said = said.rpartition(" ")[0]
        ids = tokenizer(said, add_special_tokens=False)["input_ids"]
        ended = prompt.stop and said.endswith(prompt.stop)
        answers.append(ids if ended else [*ids, tokenizer.eos_token_id])
        env.step(prompt.forced + said)
    return answers
