"""Demonstrations for small models: a shopper that reads only the pages, and a hasty one."""

from functools import lru_cache
from typing import Any

import numpy as np

from tsr_gym.state_env import left
from tsr_gym.teaching import Teaching
from tsr_gym_envs.settings import actions_within
from tsr_gym_envs.webshop.compact import BUTTONS, CompactPage, Want, compact_page, vocabulary_of, want_of
from tsr_gym_envs.webshop.oracle import MAX_SCANNED
from tsr_gym_envs.webshop.shop import PAGE_SIZE, Shop

# Probability that the hasty shopper chooses another option before buying.
P_CHOOSE = 0.4
PERMUTE = 0.4
# Longest answer in words: a query of all wanted words.
MAX_TOKENS = 40
# Groups without a success are filtered out, because their partial rewards teach hasty purchases. Few steps per batch,
# because many small steps on few trajectories destroy such a small policy.
LEARN = {"algorithm": "grpo", "lr": 3e-4, "filter": "mixed_success", "groups": 16, "trajectories": 8, "minibatch": 16}
# Many small steps, and corrections: a small model repeats an invalid action until it has seen it corrected.
RECIPE = {"steps": 1100, "batch": 16, "corrections": 384, "burst": 30}
FORM = {"observation_mode": "compact", "max_turns": 9}
# Words of pages and actions with a fixed meaning.
_FIXED_WORDS = (
    "want",
    "index",
    "page",
    "item",
    "ok",
    "dear",
    "seen",
    "nothing",
    "bought",
    "search",
    "click",
    *"[]:;?=/|,",
)


def shop_teaching(shop: Shop) -> Teaching:
    """Return the demonstrations and training settings of the shop for small models.

    The vocabulary is None for catalogues of more than `oracle.MAX_SCANNED` products.
    """
    words, content = _words(shop) if len(shop.catalogue) <= MAX_SCANNED else (None, frozenset())
    return Teaching(
        teacher_turn=teacher_turn,
        poor_turn=poor_turn,
        accepts=lambda env: bool(env.is_success(env.state)),
        env_settings=FORM,
        history="full",
        max_tokens=MAX_TOKENS,
        words=words,
        permutable=content,
        permute=PERMUTE,
        copying=True,
        learn=LEARN,
        recipe=RECIPE,
    )


@lru_cache(maxsize=8)
def _words(shop: Shop) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return all words of compact pages and actions, and the words of goods among them."""
    numbers = [str(number) for number in range(1, 6)]
    fixed = {*_FIXED_WORDS, *BUTTONS.values(), *(f"r{number}" for number in range(1, PAGE_SIZE + 1)), *numbers}
    # Words of goods can be permuted between tasks, because their meaning does not matter for copying them; words of the
    # page and numbers keep their meaning.
    content = vocabulary_of(shop)
    return tuple(sorted(fixed | content)), frozenset(word for word in content - fixed if not word.isdecimal())


def teacher_turn(env: Any, rng: np.random.Generator) -> str:
    """Return the next turn of a shopper that reads only the pages.

    It searches for all wanted words; opens the first unopened product that is affordable and shares a word with the
    instruction; goes back if the product lacks a wanted option and time for another product is left; chooses the
    options and buys.
    """
    shop, state = env.shop, env.state
    page, want = compact_page(shop, state), want_of(shop.goal(state).instruction_text)
    time = actions_within(*left(env), 1)
    time = 1_000 if time is None else time
    if state.page == "search_results":
        return _choose_product(env, page, time)
    if state.page != "item_page":
        return _search(env, want.query)
    wished = _wished(want, page)
    unmet = [name for name in wished if name not in page.chosen.values()]
    comes_in_all = len(wished) >= len(want.wishes) and page.text.split()[1] == "ok"
    # With all results opened, going back cannot lead to a new product.
    is_last = len(state.opened) == len(shop.results(state))
    # Another product takes going back, opening, choosing each option and buying.
    if not comes_in_all and not page.chosen and not is_last and time > 3 + len(want.wishes):
        return _click(env, page, "prev")
    return _click(env, page, unmet[0] if unmet and time > 1 else "buy")


def _choose_product(env: Any, page: CompactPage, time: int) -> str:
    if page.unopened:
        return _click(env, page, page.unopened[0])
    if "next" in page.shown and time > 3:
        return _click(env, page, "next")
    if "r1" in page.names:
        return _click(env, page, "r1")
    # The query has no results: half its words may have some.
    words = env.state.keywords
    return _search(env, words[: max(1, len(words) // 2)])


def _wished(want: Want, page: CompactPage) -> list[str]:
    """Return the names of the options that are wanted and listed or chosen.

    If the instruction spells out no options, it is the longest option of each group whose words it contains.
    """
    offered = {**page.values, **{group: (name,) for group, name in page.chosen.items()}}
    if want.wishes:
        return [value for group, value in want.wishes if value in offered.get(group, ())]
    words = set(want.words)
    named = ([name for name in names if words.issuperset(name.split())] for names in offered.values())
    return [max(names, key=lambda name: len(name.split())) for names in named if names]


def poor_turn(env: Any, rng: np.random.Generator, *, p_choose: float = P_CHOOSE, most_words: int = 3) -> str:
    """Return the next turn of a hasty shopper: a short query, any product, perhaps an option, and the purchase.

    Its turns have the form of the teacher's, so that training can change the choices without changing the form.

    Args:
        env: The unwrapped environment.
        rng: The source of choices.
        p_choose: Probability of choosing another option before buying.
        most_words: Most words of a query, drawn from 1 to this number; 0 for all wanted words.
    """
    shop, state = env.shop, env.state
    page = compact_page(shop, state)
    if state.page == "search_results":
        products = [name for name in page.shown if name[1:].isdecimal()]
        return _click(env, page, products[rng.integers(len(products))] if products else "back")
    if state.page != "item_page":
        words = want_of(shop.goal(state).instruction_text).query
        return _search(env, words[: int(rng.integers(1, most_words + 1))] if most_words else words)
    listed = [name for names in page.values.values() for name in names]
    chooses = listed and rng.random() < p_choose
    return _click(env, page, listed[rng.integers(len(listed))] if chooses else "buy")


def _click(env: Any, page: CompactPage, name: str) -> str:
    return f"click [ {name} ]" if env.settings.observation_mode == "compact" else f"click[{page.names[name]}]"


def _search(env: Any, words: tuple[str, ...]) -> str:
    query = " ".join(words)
    return f"search [ {query} ]" if env.settings.observation_mode == "compact" else f"search[{query}]"
