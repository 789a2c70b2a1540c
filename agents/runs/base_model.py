"""The embedded base model: a tiny language model that plays the part of an instruct model, made by imitation.

In two pools. First it imitates mostly optimal play and learns what the world looks like; then, briefly, poor and
partly malformed play, which hides the skill again. What is left succeeds rarely and wastes turns, and reinforcement
brings the skill back out, as with a pretrained model.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.play import evaluate
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.agents.models.card import ModelCard
from tsr_gym.agents.models.language_model import LanguageModel, save_policy
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.models.tiny_model import END, tiny_model, tiny_tokenizer
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.runs.base_recipe import BaseRecipe, check_recipe
from tsr_gym.cache_home import cache_home
from tsr_gym.codec import digest
from tsr_gym.files import write_folder
from tsr_gym.registration import env_id
from tsr_gym.seeds import derive_seed
from tsr_gym.version import __version__
from tsr_gym.wrappers import TreeSearchWrapper

Note = Callable[[str], None]
# Rates for 0.1 million parameters; the paper's 1e-6 is for billions, and moves nothing here.
LEARN = (("lr", 5e-4), ("critic_lr", 1e-3))


@dataclass(frozen=True, slots=True)
class _Play:
    """Shares of turns that are optimal (the others are random), malformed, and of at most one action."""

    skill: float
    malformed: float = 0.0
    one_action: float = 0.0


@dataclass(frozen=True, slots=True)
class _Example:
    """What the model sees and what it should say."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


def default_model(env: str, env_set: Sequence[str] = (), *, note: Note = lambda text: None) -> Path:
    """Return the folder of an environment's embedded base model, built at the first use.

    Args:
        env: Gymnasium id or short name.
        env_set: Settings of the environment, as KEY=VALUE.
        note: Told what is being done.
    """
    recipe = BaseRecipe(env_set=tuple(env_set))
    key = digest((env_id(env), recipe, LEARN, __version__))[:12]
    folder = cache_home() / "models" / f"{env_id(env).replace('/', '-').replace(':', '-')}-{key}"
    if not folder.exists():
        check_recipe(env, folder, recipe)
        note(f"building the base model of {env_id(env)} in {folder}")
        build_base_model(env, folder, recipe, note=note)
    return folder


def build_base_model(
    env: str, out: Path, recipe: BaseRecipe | None = None, *, note: Note = lambda text: None
) -> dict[str, Any]:
    """Build a base model in a folder, in Hugging Face form.

    Args:
        env: Gymnasium id or short name of an environment with an oracle.
        out: The folder; it must not exist.
        recipe: How; None for `BaseRecipe`'s defaults.
        note: Told what is being done.

    Returns:
        How it was made and how it plays.

    Raises:
        ConfigError: The folder exists, or the environment has no oracle to learn from.
    """
    recipe = recipe or BaseRecipe()
    form = check_recipe(env, out, recipe)
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    card = ModelCard(
        prompt="compact", history="markov", env=env_id(env), env_settings=form, max_tokens=16, learn=dict(LEARN)
    )
    task = TaskConfig(env_set=recipe.env_set)
    blank = ModelPlayer(env, task, ModelConfig(), LanguageModel(None, None, card))
    pool = blank.pool("train")
    tokenizer = tiny_tokenizer(_texts(pool, recipe.seed))
    model = tiny_model(tokenizer, hidden=recipe.hidden, layers=recipe.layers, seed=recipe.seed)
    player = replace(blank, policy=LanguageModel(model, tokenizer, card))
    chat = player.chat("", temperature=1.0)
    note("imitating mostly optimal play")
    skilled = _demonstrate(pool, chat, _Play(recipe.skill), _tasks(recipe, 1, recipe.instances), recipe.episodes)
    longest = max(len(example.answer) for example in skilled)
    if longest > 16:
        card = replace(card, max_tokens=longest)
        player = replace(player, policy=player.policy._replace(card=card))
    _imitate(model, skilled, recipe, steps=recipe.steps, lr=recipe.lr, final=0.1, warmup=50)
    best = _success(player, recipe)
    note(f"plays with success {best:.3f}; imitating poor play until it is from {recipe.band[0]} to {recipe.band[1]}")
    play = _Play(recipe.poor_skill, malformed=recipe.malformed, one_action=0.8)
    poor = _demonstrate(pool, chat, play, _tasks(recipe, 2, max(1, recipe.instances // 5)))
    success = _hide(player, poor, recipe, best, note)
    about = {"recipe": asdict(recipe), "success_skilled": best, "success": success, "version": __version__}
    out.parent.mkdir(parents=True, exist_ok=True)
    write_folder(out, partial(_save, player.policy, about))
    return about


def _save(policy: LanguageModel, about: dict[str, Any], folder: Path) -> None:
    save_policy(policy._replace(card=replace(policy.card, about=about)), folder)


def _texts(pool: EnvPool, seed: int) -> list[str]:
    """Return texts with every sign that the model will read or say."""
    rng = np.random.default_rng(seed)
    base = pool.base
    texts = ["turn left || " + " ".join(map(str, range(21))), " ".join(base.actions)]
    for number in range(64):
        env = pool.set([derive_seed(seed, "texts", number)])[0]
        texts.append(str(env.tree.nodes[0].observation))
        while not env.tree.nodes[env.cursor].done:
            env.step(f"<answer>{_random_turn(env, rng, 1)}</answer>")
            texts.append(str(env.tree.nodes[env.cursor].observation))
    return texts


def _tasks(recipe: BaseRecipe, stage: int, number: int) -> list[int]:
    return [derive_seed(recipe.seed, "demonstration", stage, index) for index in range(number)]


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
                turn = _optimal_turn(env) if rng.random() < play.skill else None
                longest = 1 if rng.random() < play.one_action else pool.base.limits.max_actions_per_turn or 1
                said = turn or _random_turn(env, rng, longest)
                said = _malform(said, rng) if rng.random() < play.malformed else f"{said}</answer>"
                prompt = chat.prompt_ids(env.tree, env.cursor)
                answer = tuple(chat.tokenizer(said, add_special_tokens=False)["input_ids"])
                examples.append(_Example(prompt, answer))
                env.step(f"<answer>{said}")
    return examples


def _optimal_turn(env: TreeSearchWrapper) -> str:
    base: Any = env.unwrapped
    info = env.tree.nodes[env.cursor].info
    turn = base.optimal_turn(base.state, info["turns_left"], info["actions_left"])
    # A position that can no longer be solved has no best turn: any will do.
    return str(turn or base.legal_actions(base.state)[0])


def _random_turn(env: TreeSearchWrapper, rng: np.random.Generator, longest: int) -> str:
    base: Any = env.unwrapped
    names = base.legal_actions(base.state)
    picks = rng.integers(len(names), size=rng.integers(1, longest + 1))
    return " || ".join(names[pick] for pick in picks)


def _malform(said: str, rng: np.random.Generator) -> str:
    """Return an answer with one of three faults: never closed, a word too much, or no separators."""
    return [f"{said}{END}", f"turn {said}</answer>", f"{said.replace('||', '')}</answer> "][rng.integers(3)].strip()


def _imitate(
    model: Any, examples: Sequence[_Example], recipe: BaseRecipe, *, steps: int, lr: float, final: float, warmup: int
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


def _hide(player: ModelPlayer, examples: Sequence[_Example], recipe: BaseRecipe, success: float, note: Note) -> float:
    """Imitate poor play in short bursts until success is in the band; from the success before to the one after."""
    model = player.policy.model
    low, high = recipe.band
    lr = recipe.lr / 4
    for _ in range(recipe.poor_steps // 20):
        if success <= high:
            break
        before = {name: value.clone() for name, value in model.state_dict().items()}
        _imitate(model, examples, recipe, steps=20, lr=lr, final=1.0, warmup=1)
        found = _success(player, recipe)
        note(f"success {found:.3f}")
        if found < low:
            # Too far: go back and take smaller steps.
            model.load_state_dict(before)
            lr /= 2
        else:
            success = found
    if success > high:
        note(f"still above {high} after {recipe.poor_steps} steps of poor play: success {success:.3f}")
    return success


def _success(player: ModelPlayer, recipe: BaseRecipe) -> float:
    """Return the success of a model on instances of the validation split."""
    chat = player.chat("", temperature=0.5)
    tasks = [derive_seed(recipe.seed, "validate", number) for number in range(recipe.validations)]
    return evaluate(player.pool("valid"), chat, tasks=tasks, seed=recipe.seed).success
