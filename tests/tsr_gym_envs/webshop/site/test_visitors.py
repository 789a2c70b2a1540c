"""Who is in the shop: found by a token, forgotten when idle or too many."""

from tsr_gym.tree import Tree
from tsr_gym_envs.webshop.site.visitors import Visit, Visitors


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def test_a_visitor_is_found_by_the_token_alone():
    visitors = Visitors()
    visit = Visit(1, Tree())
    token = visitors.enter(visit)
    assert visitors.find(token) is visit
    assert [visitors.find(other) for other in (None, "", token[:-1], token + "a", token.swapcase())] == [None] * 5


def test_tokens_are_long_and_never_the_same():
    visitors = Visitors(max_visitors=1000)
    tokens = {visitors.enter(Visit(1, Tree())) for _ in range(1000)}
    assert len(tokens) == len(visitors) == 1000
    # 32 random bytes in base 64.
    assert {len(token) for token in tokens} == {43}


def test_too_many_visitors_push_out_who_came_least_recently():
    visitors = Visitors(max_visitors=2)
    first, second = (visitors.enter(Visit(1, Tree())) for _ in range(2))
    assert visitors.find(second) is not None
    assert visitors.find(first) is not None
    third = visitors.enter(Visit(1, Tree()))
    assert visitors.find(third) is not None
    assert [visitors.find(token) is None for token in (first, second, third)] == [False, True, False]
    assert len(visitors) == 2


def test_those_who_never_come_back_push_out_each_other_and_nobody_else():
    visitors = Visitors(max_visitors=2)
    shopper = visitors.enter(Visit(1, Tree()))
    assert visitors.find(shopper) is not None
    passing = [visitors.enter(Visit(1, Tree())) for _ in range(1000)]
    assert visitors.find(shopper) is not None
    assert len(visitors) == 3
    assert [visitors.find(token) is None for token in passing[-3:]] == [True, False, False]


def test_idle_visitors_are_forgotten_and_busy_ones_are_not():
    clock = Clock()
    visitors = Visitors(idle_s=10, clock=clock)
    idle, busy = (visitors.enter(Visit(1, Tree())) for _ in range(2))
    for _ in range(3):
        clock.now += 6
        assert visitors.find(busy) is not None
    assert visitors.find(idle) is None
    assert len(visitors) == 1


def test_the_next_trip_takes_the_place_of_the_last():
    visitors = Visitors()
    token = visitors.enter(Visit(1, Tree()))
    following = Visit(2, Tree())
    visitors.keep(token, following)
    assert visitors.find(token) is following
    assert len(visitors) == 1
