"""The shop: what settings make of it, commands among the queries, and purchases."""

import pytest

from tests.tsr_gym_envs.webshop.small_files import item, write_files
from tests.tsr_gym_envs.webshop.tiny_shop import goal, product, tiny_shop
from tsr_gym import InvalidCatalogue
from tsr_gym_envs.webshop.actions import parse, parse_kindly
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.repairs import RULES
from tsr_gym_envs.webshop.settings import WebShopSettings, make_settings
from tsr_gym_envs.webshop.shop import open_shop
from tsr_gym_envs.webshop.state import ShopState

MUG = product(0, "steel mug", options=(("size", ("5",)),), attributes=("leak proof",))


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    items = [
        item(
            number, name=f"shirt {number}", category="fashion" if number % 2 else "garden", query=f"query {number % 3}"
        )
        for number in range(60)
    ]
    items.append(item(60, category="", query="", name="nameless"))
    folder = tmp_path_factory.mktemp("sixty")
    return import_catalogue(write_files(folder / "files", items), folder / "store")


def found(catalogue, rules, query):
    shop = open_shop(WebShopSettings(catalogue=str(catalogue.path), rules=rules))
    return shop.results(ShopState(0, "s", "search_results", tuple(query.split(" "))))


def test_commands_list_whole_categories_and_crawl_queries_in_the_original(catalogue):
    odd = tuple(range(1, 60, 2))
    assert found(catalogue, "original", "<c> fashion") == odd
    assert found(catalogue, "original", "<c> fashion shirts") == odd
    assert found(catalogue, "original", "<c> ") == (60,)
    assert found(catalogue, "original", "<q> query 1") == tuple(range(1, 60, 3))
    assert found(catalogue, "original", "<q>") == (60,)


@pytest.mark.parametrize("query", ["<c>", "<a>", "<a> soft", "<c> no such category"])
def test_where_the_original_fails_nothing_is_found(catalogue, query):
    assert found(catalogue, "original", query) == ()


def test_commands_are_words_once_repaired(catalogue):
    assert len(found(catalogue, "fixed", "<c> fashion shirt")) == 50
    assert found(catalogue, "fixed", "<c> fashion shirt") == found(catalogue, "original", " <c> fashion shirt")


def test_a_purchase_can_be_changed_by_whoever_asked():
    shop = tiny_shop([MUG], [goal(MUG, "Find me a mug", options=(("size", "5"),))])
    state = ShopState(0, "s", "done", row=0, options=(("size", "5"),))
    shop.purchase(state).clear()
    assert shop.purchase(state)["reward"] == 1.0
    assert shop.purchase(state._replace(options=()))["reward"] == pytest.approx(2 / 3)


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
