"""What is taken for a means of rendering, and what is not."""

import pygame
import pytest

from tsr_gym.foreign.attributes import is_state
from tsr_gym.foreign.objects import holds_handles, is_handle, names_handle


def surface():
    return pygame.Surface((2, 2))


@pytest.mark.parametrize("value", [surface(), pygame.time.Clock()])
def test_surfaces_and_clocks_are_means_of_rendering(value):
    assert is_handle(value)
    assert holds_handles([value, value])
    assert holds_handles({"a": (value,)})
    assert not is_state("anything", value)
    assert not is_state("anything", [[value]])


@pytest.mark.parametrize("value", [pygame.Vector2(1, 2), pygame.Rect(1, 2, 3, 4), 3, None, [], [surface(), 1], {}])
def test_positions_and_mixtures_are_state(value):
    assert not holds_handles(value)
    assert is_state("position", value)


@pytest.mark.parametrize("name", ["screen", "window_surface", "clock", "_viewer", "agent_img", "ice_crack_imgs"])
def test_what_is_called_as_means_of_rendering_are_is_none_of_the_state_while_it_is_none(name):
    assert names_handle(name)
    assert not is_state(name, None)
    assert is_state(name, 3)


@pytest.mark.parametrize("name", ["state", "clockwise", "screened", "last_action", "surfaces_left"])
def test_other_names_are_not_taken_for_it(name):
    assert not names_handle(name)


@pytest.mark.parametrize(
    "name",
    ["action_space", "observation_space", "spec", "metadata", "render_mode", "_np_random", "_ezpickle_args"],
)
def test_what_gymnasium_keeps_on_an_environment_is_no_state(name):
    assert not is_state(name, (1, 2))
