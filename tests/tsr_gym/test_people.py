"""People: the form that is made for a model is left out, and clicks are the names of what can be pressed."""

from types import SimpleNamespace

from tsr_gym.people import clicks, for_people


def test_only_the_form_in_which_states_are_shown_is_left_out():
    settings = {"observation_mode": "compact", "obs_type": "compact", "entities": 1000, "max_turns": 3}
    assert for_people(settings) == {"entities": 1000, "max_turns": 3}


def test_clicks_are_what_can_be_pressed_in_small_letters():
    shop = SimpleNamespace(legal_actions=lambda state: ("search[red shoes]", "click[Buy Now]", "click[b0[1]]", "Up"))
    assert clicks(shop, None) == ("buy now", "b0[1]")
