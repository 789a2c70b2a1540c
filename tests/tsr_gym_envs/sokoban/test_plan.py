"""Plans and dead ends: played out on small boards, and on boards that only the solver can handle."""

import pytest

from tsr_gym.errors import MissingExtra
from tsr_gym_envs.sokoban import plan
from tsr_gym_envs.sokoban.levels import parse_level
from tsr_gym_envs.sokoban.plan import dead_end, shortest_plan
from tsr_gym_envs.sokoban.rules import push

SMALL = "######\n#@ $.#\n######"
LARGE = "\n".join(
    ["#" * 14, "#@" + " " * 11 + "#", *["#" + " " * 12 + "#"] * 8, "# $$ $$  .. .#", "#          . #", "#" * 14]
)
STUCK = LARGE.replace("#@" + " " * 11 + "#", "#$@" + " " * 9 + ".#")


def played(state, actions):
    for action in actions:
        state = push(state, action)
    return state


@pytest.mark.parametrize("text", [SMALL, LARGE], ids=["small", "large"])
def test_a_plan_solves_the_level(text):
    state = parse_level(text)
    assert played(state, shortest_plan(state)).solved
    assert dead_end(state) is None


def test_the_plan_of_a_small_board_has_the_fewest_moves():
    assert shortest_plan(parse_level(SMALL)) == [3, 3]


def test_where_nothing_solves_there_is_no_plan_and_a_reason():
    for text in ("#####\n#$@.#\n#####", STUCK):
        state = parse_level(text)
        assert shortest_plan(state) is None
        assert dead_end(state) == "dead square"


def test_without_the_extra_small_boards_are_known_and_large_ones_ask_for_it(monkeypatch):
    def missing(package, extra):
        raise MissingExtra(package, extra)

    monkeypatch.setattr(plan, "require", missing)
    assert shortest_plan(parse_level(SMALL)) == [3, 3]
    assert dead_end(parse_level("#####\n#$@.#\n#####")) == "table"
    for ask in (shortest_plan, dead_end):
        with pytest.raises(MissingExtra, match="envs"):
            ask(parse_level(LARGE))
