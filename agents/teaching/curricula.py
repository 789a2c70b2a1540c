"""The curricula of embedded base models: worlds of symbols, and worlds of words.

Of symbols: every turn stands alone, and every symbol of the observation is a token. Of words: a drill in copying, then
imitation of a teacher's whole episodes.
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
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.models.language_model import LanguageModel
from tsr_gym.agents.models.settings import ModelCard, ModelConfig
from tsr_gym.agents.models.tiny_model import set_copying_heads, tiny_model
from tsr_gym.agents.models.tokenizer import END, tiny_tokenizer, word_tokenizer
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.strategies import naive
from tsr_gym.agents.teaching.base_recipe import LEARN, BaseRecipe, TaughtWorld, WordRecipe
from tsr_gym.agents.teaching.imitation import Answer, Exchange, Row, drill_copying, imitate_rows, rows_of
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import choose
from tsr_gym.registration import env_id
from tsr_gym.seeds import derive_seed
from tsr_gym.teaching import Player, Teaching, random_turn
from tsr_gym.tree import Candidate
from tsr_gym.wrappers import TreeSearchWrapper

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
    teaching = base.teaching()
    texts += [] if teaching is None else [" ".join(teaching.symbols)]
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
class _WordPlay:
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
    good = _WordPlay(teaching, recipe.skill)
    rows = _demonstrate_words(pool, chat, good, tasks, recipe.episodes)
    if not rows:
        raise ConfigError(f"none of {len(tasks)} episodes of {env_id(env)} is worth imitating: see Teaching.accepts")
    note(f"imitating {len(rows)} rows of good play")
    exchange = Exchange(len(tokenizer), _ids(tokenizer, teaching.permutable), teaching.permute)
    imitate = partial(imitate_rows, model, recipe=recipe, exchange=exchange)
    slips = _imitate_good(player, pool, good, recipe, rows, imitate, note)

    def poor_play() -> Callable[[float], None]:
        play = _WordPlay(teaching, recipe.poor_skill, recipe.malformed)
        tasks = demonstration_tasks(recipe, 2, max(1, recipe.instances // 5))
        rows = [*_demonstrate_words(pool, chat, play, tasks, 1), *_correct(pool, chat, play, slips)]
        return lambda lr: imitate(rows, steps=recipe.burst, lr=lr, final=1.0)

    return Skilled(player, poor_play)


def _imitate_good(
    player: ModelPlayer,
    pool: EnvPool,
    play: _WordPlay,
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


def _correct(pool: EnvPool, chat: ChatPolicy, play: _WordPlay, slips: Sequence[_Slip]) -> list[Row]:
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


def _demonstrate_words(
    pool: EnvPool, chat: ChatPolicy, play: _WordPlay, tasks: Sequence[int], episodes: int
) -> list[Row]:
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
    env: TreeSearchWrapper, chat: ChatPolicy, play: _WordPlay, rng: np.random.Generator, begun: Sequence[Candidate] = ()
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
