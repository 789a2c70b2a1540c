"""Shops from settings."""

import pytest

from tsr_gym import InvalidCatalogue
from tsr_gym_envs.webshop.actions import parse, parse_kindly
from tsr_gym_envs.webshop.opening import open_shop
from tsr_gym_envs.webshop.repairs import RULES
from tsr_gym_envs.webshop.settings import make_settings


@pytest.fixture
def settings_of(real_catalogue):
    return lambda **given: make_settings("default", {"catalogue": str(real_catalogue.path), **given})


def test_equal_settings_share_a_shop(settings_of):
    shop = open_shop(settings_of())
    assert open_shop(settings_of(max_turns=3, observation_mode="html", split="test")) is shop
    others = [open_shop(settings_of(**given)) for given in ({"human_goals": True}, {"show_attrs": True})]
    assert shop not in others
    assert open_shop(settings_of(), noun_fn=str.split) is not shop


def test_a_shop_is_what_the_settings_say(settings_of):
    shop = open_shop(settings_of(rules="original", human_goals=True, limit_goals=3, show_attrs=True), str.split)
    assert (shop.repairs, shop.show_attrs, shop.parse) == (RULES["original"], True, parse)
    assert (len(shop.goals), shop.noun_fn("a b"), shop.noun_source) == (3, ["a", "b"], "injected")
    assert open_shop(settings_of()).parse is parse_kindly


def test_a_folder_without_a_catalogue_is_refused(tmp_path):
    with pytest.raises(InvalidCatalogue, match="items_shuffle"):
        open_shop(make_settings("default", {"catalogue": str(tmp_path)}))
