"""Shops from settings; environments with the same ones share a shop."""

from functools import lru_cache
from pathlib import Path

from tsr_gym_envs.webshop.actions import parse, parse_kindly
from tsr_gym_envs.webshop.catalogue import open_catalogue
from tsr_gym_envs.webshop.goals import make_goals
from tsr_gym_envs.webshop.nouns import open_nouns
from tsr_gym_envs.webshop.repairs import Repairs
from tsr_gym_envs.webshop.reward import NounFn
from tsr_gym_envs.webshop.search_engine import open_index
from tsr_gym_envs.webshop.settings import WebShopSettings
from tsr_gym_envs.webshop.shop import Shop
from tsr_gym_envs.webshop.store import Catalogue


def open_shop(settings: WebShopSettings, noun_fn: NounFn | None = None) -> Shop:
    """Return the shop that settings stand for.

    Args:
        settings: The settings.
        noun_fn: The nouns of a title; None finds the best source there is.

    Raises:
        InvalidCatalogue: The catalogue is missing or damaged.
        MissingExtra: A library is not installed.
    """
    where = None if settings.catalogue is None else Path(settings.catalogue)
    return _shop(
        open_catalogue(where, num_products=settings.num_products),
        settings.chosen_repairs,
        settings.human_goals,
        settings.catalogue_seed,
        settings.limit_goals,
        settings.engine,
        settings.show_attrs,
        settings.is_original,
        noun_fn,
    )


@lru_cache(maxsize=8)
def _shop(
    catalogue: Catalogue,
    repairs: Repairs,
    human_goals: bool,
    seed: int,
    limit_goals: int | None,
    engine: str,
    show_attrs: bool,
    is_original: bool,
    noun_fn: NounFn | None,
) -> Shop:
    nouns, source = open_nouns(noun_fn, catalogue)
    return Shop(
        catalogue,
        make_goals(catalogue, repairs, human=human_goals, seed=seed, limit=limit_goals),
        open_index(catalogue, engine=engine),
        repairs,
        noun_fn=nouns,
        noun_source=source,
        show_attrs=show_attrs,
        parse=parse if is_original else parse_kindly,
    )
