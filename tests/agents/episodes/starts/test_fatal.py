"""Fatal: the states before moves that lost the task, by proofs and by ends."""

from tests.agents.episodes.starts.trees import moment_of, seen, words
from tests.agents.worlds import letters
from tsr_gym import Candidate
from tsr_gym.agents.episodes.starts import Begun, Fatal
from tsr_gym.agents.episodes.starts.fatal import before_fatal_moves


def test_states_before_a_proven_dead_end_are_found_and_lost_ones_are_not():
    # 0 "", 1 a, 2 b, 3 aa, 4 ab+, 5 aab+, 6 aaa, 7 b's a, 8 aabb (below a dead end, itself proven lost).
    tree = words((0, "ab"), (1, "ab"), (3, "ba"), (2, "a"), (5, "b"), dead=("ab", "aab", "aabb"), turns_at_most=5)
    assert [tree.nodes[node].observation for node in before_fatal_moves(tree)] == ["a", "aa"]


def test_an_end_of_the_task_without_success_is_fatal_and_one_by_a_limit_is_not():
    env = letters({"a": 0.0, "b": 0.0}, ends="b", turns=3)
    env.unwrapped.is_success = lambda state: False
    for parent, said in [(0, "a"), (1, "ab"), (2, "ab")]:
        env.expand(parent, [Candidate(letter) for letter in said])
    # 1 a; 2 aa, 3 ab, which ends the task; 4 aaa, by the limit, 5 aab, which ends it.
    assert before_fatal_moves(env.tree) == [1, 2]
    solvable = words((0, "a"), (1, "ax"), (2, "a"), (4, "a"), turns_at_most=4)
    assert before_fatal_moves(solvable) == []


def test_the_start_of_an_instance_is_no_moment():
    assert before_fatal_moves(words((0, "ab"), dead=("a",))) == []


def test_what_became_of_groups_that_began_there_counts():
    starts = Fatal()
    starts.keep([words((0, "a"), (1, "ab"), dead=("ab",))], [])
    assert seen(starts.bank) == ["a"]
    moment = moment_of(starts, "a")
    assert (moment.tries, moment.successes) == (1, 0)
    starts.keep([], [Begun(moment, 4, 3)])
    assert (moment_of(starts, "a").tries, moment_of(starts, "a").successes) == (5, 3)
    # One that has left the bank meanwhile is no matter.
    starts.bank.keep_last(0)
    starts.keep([], [Begun(moment, 4, 3)])
    assert len(starts.bank) == 0
