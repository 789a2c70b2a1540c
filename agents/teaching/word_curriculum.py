"""The curriculum of worlds of words: a drill in copying, then imitation of a teacher's whole episodes.

Words are exchanged for one another from row to row, so that the model learns to read them. The poor player's answers
are valid, so that hiding removes good choices more than the answer format.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.models.card import ModelCard
from tsr_gym.agents.models.language_model import LanguageModel
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.models.tiny_model import set_copying_heads, tiny_model
from tsr_gym.agents.models.tokenizer import word_tokenizer
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.strategies import naive
from tsr_gym.agents.teaching.base_recipe import LEARN, TaughtWorld, WordRecipe
from tsr_gym.agents.teaching.imitation import Answer, Exchange, Row, drill_copying, imitate_rows, rows_of
from tsr_gym.agents.teaching.symbol_curriculum import Note, Skilled, demonstration_tasks, in_fifths
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import choose
from tsr_gym.registration import env_id
from tsr_gym.teaching import Player, Teaching
from tsr_gym.tree import Candidate
from tsr_gym.wrappers import TreeSearchWrapper

# Fewer heads than usual, so that each is wide enough to distinguish words, and a large rotary base, so that positions
# change the keys of words little.
HEADS, THETA = 2, 1e6
CONTEXT = 4096
# Episodes from which words are collected if the teaching lists none.
_NUM_READ = 256
# Share of the first stage's steps before the model's own slips are corrected.
EARLY = 0.65
_FORM = ("<answer>", "</answer>", "turn", *map(str, range(1, 31)))


@dataclass(frozen=True, slots=True)
class _Play:
    """The players, and the shares of turns that are the teacher's and that are malformed."""

    teaching: Teaching
    skill: float
    malformed: float = 0.0

    @property
    def accepts(self) -> Callable[[Any], bool]:
        """Whether an episode is imitated: poor play always is."""
        return self.teaching.accepts if self.skill == 1 else lambda env: True


class _Slip(NamedTuple):
    """A task instance, with a model's answers in it up to its first invalid one."""

    task: int
    answers: tuple[Candidate, ...]


def word_curriculum(env: str, recipe: WordRecipe, world: TaughtWorld, note: Note) -> Skilled:
    """Return a model that learned to play from whole episodes.

    Args:
        env: Gymnasium id or short name.
        recipe: Sizes, steps and rates.
        world: The environment's teaching.
        note: Called with a line of text at each stage.

    Raises:
        ConfigError: The model does not learn to copy, none of the teacher's episodes is worth imitating, or the
            recipe's poor player does not exist.
    """
    teaching = world.teaching
    if recipe.poor_player:
        poor_turn = choose(recipe.poor_player, home="tsr_gym.teaching", what="poor player", takes=2)
        teaching = replace(teaching, poor_turn=poor_turn)
    card = ModelCard(
        prompt="words",
        history=teaching.history,
        env=env_id(env),
        env_settings=world.env_settings,
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
    good = _Play(teaching, recipe.skill)
    rows = _demonstrate(pool, chat, good, tasks, recipe.episodes)
    if not rows:
        raise ConfigError(f"none of {len(tasks)} episodes of {env_id(env)} is worth imitating: see Teaching.accepts")
    note(f"imitating {len(rows)} rows of good play")
    exchange = Exchange(len(tokenizer), _ids(tokenizer, teaching.permutable), teaching.permute)
    imitate = partial(imitate_rows, model, recipe=recipe, exchange=exchange)
    slips = _imitate_good(player, pool, good, recipe, rows, imitate, note)

    def poor_play() -> Callable[[float], None]:
        play = _Play(teaching, recipe.poor_skill, recipe.malformed)
        tasks = demonstration_tasks(recipe, 2, max(1, recipe.instances // 5))
        rows = [*_demonstrate(pool, chat, play, tasks, 1), *_correct(pool, chat, play, slips)]
        return lambda lr: imitate(rows, steps=recipe.burst, lr=lr, final=1.0)

    return Skilled(player, poor_play)


def _imitate_good(
    player: ModelPlayer,
    pool: EnvPool,
    play: _Play,
    recipe: WordRecipe,
    rows: Sequence[Row],
    imitate: Callable[..., None],
    note: Note,
) -> list[_Slip]:
    """Imitate good play, with corrections of the model's slips if the recipe has any; return the slips."""
    on_step = in_fifths(note, recipe.steps)
    early = round(EARLY * recipe.steps) if recipe.corrections else recipe.steps
    # The learning rate falls linearly to a tenth over all steps. The early steps end, and the later ones begin, at the
    # share `left` of it.
    left = 0.1 + 0.9 * (1 - early / recipe.steps)
    imitate(rows, steps=early, lr=recipe.lr, final=left, on_step=on_step)
    if not recipe.corrections:
        return []
    chat = player.chat_about(pool.base, temperature=1.0)
    tasks = demonstration_tasks(recipe, 3, recipe.corrections)
    slips = _slips(pool, chat, tasks)
    rows = [*rows, *_correct(pool, chat, play, slips)]
    note(f"corrected in {len(slips)} of the model's {len(tasks)} episodes, imitating {len(rows)} rows")
    later = recipe.steps - early
    imitate(rows, steps=later, lr=left * recipe.lr, final=0.1 / left, on_step=lambda done: on_step(early + done))
    return slips


def _slips(pool: EnvPool, chat: ChatPolicy, tasks: Sequence[int]) -> list[_Slip]:
    """Play every instance once and return the episodes with an invalid answer, up to the first one."""
    slips = []
    for task, tree in zip(tasks, search(pool.set(tasks), chat, naive, seeds=tasks), strict=True):
        path = tree.path(tree.leaves()[0])
        invalid = (turn for turn, node in enumerate(path) if not tree.nodes[node].info.get("action_is_valid", True))
        if (first := next(invalid, None)) is not None:
            slips.append(_Slip(task, tuple(tree.nodes[node].candidate for node in path[1 : first + 1])))
    return slips


def _correct(pool: EnvPool, chat: ChatPolicy, play: _Play, slips: Sequence[_Slip]) -> list[Row]:
    """Let the teacher continue every episode from before and from after its slip; return the accepted episodes."""
    rng = np.random.default_rng(len(slips))
    rows = []
    for slip in slips:
        for begun in (slip.answers[:-1], slip.answers):
            env = pool.set([slip.task])[0]
            answers = _episode(env, chat, play, rng, begun)
            if play.accepts(env.unwrapped):
                rows += rows_of(env.tree, env.cursor, chat, answers)
    return rows


def _learn_to_copy(model: Any, tokenizer: Any, teaching: Teaching, recipe: WordRecipe, note: Note) -> None:
    set_copying_heads(model, seed=recipe.seed)
    added = set(tokenizer.get_added_vocab().values())
    words = _ids(tokenizer, teaching.permutable) or sorted(added - set(tokenizer.all_special_ids))
    user, assistant = tokenizer.convert_tokens_to_ids(["<user>", "<assistant>"])
    note("learning to copy words")
    steps = drill_copying(model, words, recipe, around=(user, assistant, tokenizer.eos_token_id))
    note(f"copies {len(words)} words after {steps} steps")


def _ids(tokenizer: Any, words: Sequence[str] | frozenset[str]) -> list[int]:
    return list(tokenizer.convert_tokens_to_ids([f" {word}" for word in sorted(words)]))


def _words(pool: EnvPool, recipe: WordRecipe, teacher: Player) -> set[str]:
    """Return the words that occur in some of the teacher's episodes."""
    rng = np.random.default_rng(recipe.seed)
    forced, stop = ("", "") if pool.base.reads_tags else ("<answer> ", " </answer>")
    words: set[str] = set()
    for task in demonstration_tasks(recipe, 0, _NUM_READ):
        env = pool.set([task])[0]
        while not env.tree.nodes[env.cursor].done:
            env.step(f"{forced}{teacher(env.unwrapped, rng)}{stop}")
        for node in env.tree.nodes:
            words.update(str(node.observation).split(), node.candidate.text.split())
    return words


def _demonstrate(pool: EnvPool, chat: ChatPolicy, play: _Play, tasks: Sequence[int], episodes: int) -> list[Row]:
    """Play `episodes` of each task instance and return the rows of those that are accepted."""
    rng = np.random.default_rng(tasks[0])
    rows = []
    for task in tasks:
        env = pool.set([task])[0]
        for _ in range(episodes):
            answers = _episode(env, chat, play, rng)
            if play.accepts(env.unwrapped):
                rows += rows_of(env.tree, env.cursor, chat, answers)
    return rows


def _episode(
    env: TreeSearchWrapper, chat: ChatPolicy, play: _Play, rng: np.random.Generator, begun: Sequence[Candidate] = ()
) -> list[Answer]:
    """Play an episode to its end after the answers `begun`, which are not imitated, and return all answers."""
    prompt, tokenizer = chat.prompt, chat.tokenizer
    env.goto(env.tree.ROOT)
    for candidate in begun:
        env.play(candidate)
    answers = [Answer(candidate.token_ids, learned=False) for candidate in begun]
    while not env.tree.nodes[env.cursor].done:
        player = play.teaching.teacher_turn if rng.random() < play.skill else play.teaching.poor_turn
        text = f" {' '.join(player(env.unwrapped, rng).split())}{prompt.stop}"
        if rng.random() < play.malformed:
            # Drop the closing tag.
            text = text.rpartition(" ")[0]
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        ended = prompt.stop and text.endswith(prompt.stop)
        answers.append(Answer(ids if ended else [*ids, tokenizer.eos_token_id]))
        env.step(prompt.forced + text)
    return answers
