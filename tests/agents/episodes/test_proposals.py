"""Proposals: a model is asked as if the person's turns had been its own."""

from typing import NamedTuple

import pytest

from tests.agents.reports.view.trees import node
from tsr_gym.agents.episodes.model_player import Proposal, Proposer
from tsr_gym.tree import Candidate


class Answers(NamedTuple):
    """A player whose chat policy gives these answers and keeps what it was asked about."""

    answers: list[Candidate]
    asked: list[object]
    think: bool = True

    def chat_about(self, base, *, temperature):
        def chat(requests):
            self.asked.extend((tree.nodes[1].candidate.text, wish) for tree, wish in requests)
            return [self.answers]

        return chat


class World(NamedTuple):
    reads_tags: bool = False


PATH = [node(None, 0), node(0, 1, "Up")]


def test_equal_actions_are_one_proposal_and_the_frequent_come_first():
    said = ["<think>a</think><answer>Left</answer>", "<think>b</think><answer>Left</answer>", "what?", "<answer>x"]
    player = Answers([Candidate(text, (), (1, 2), (-0.5 * k, -0.5)) for k, text in enumerate(said)], [])
    found = Proposer(player, World())(PATH, seed=1, samples=4)
    assert [(one.action, one.times) for one in found] == [("", 2), ("Left", 2)][::-1]
    # exp(0 - 0.5) of the first; exp(-1 - 0.5) of the third.
    assert [one.probability for one in found] == pytest.approx([0.60653, 0.22313], abs=1e-5)
    assert player.asked == [("<think></think><answer>Up</answer>", (1, 4))]


def test_answers_without_thinking_and_protocols_with_tags_of_their_own_are_known():
    player = Answers([Candidate("<answer>Left</answer>")], [], think=False)
    assert Proposer(player, World())(PATH, seed=1, samples=1) == [Proposal("Left", 1, 1.0)]
    assert player.asked[0][0] == "<answer>Up</answer>"
    player = Answers([Candidate("<search>a</search>")], [])
    assert Proposer(player, World(reads_tags=True))(PATH, seed=1, samples=1)[0].action == "<search>a</search>"
    assert player.asked[0][0] == "Up"
