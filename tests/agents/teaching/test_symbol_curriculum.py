"""The curriculum of worlds of symbols: the players of its demonstrations, and the learned tokens."""

from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.models.tokenizer import END
from tsr_gym.agents.teaching import curricula as module


def test_demonstrations_are_optimal_random_or_malformed_by_the_shares_of_the_recipe():
    pool = EnvPool("sokoban", {"obs_type": "compact", "split": "train"}, think=False)

    class Spelling:
        """Prompts and tokens of a policy, as plain text."""

        def prompt_ids(self, tree, node):
            return tree, node

        def tokenizer(self, text, add_special_tokens):
            return {"input_ids": [text]}

    teaching = pool.base.teaching()

    def shown(stray, **shares):
        play = module._Play(teaching.teacher_turn, stray, **shares)
        return module._demonstrate(pool, Spelling(), play, range(1, 91))

    def outcome(example):
        tree, node = example.prompt
        return tree.nodes[tree.children(node)[0]]

    best = shown(teaching.poor_turn, skill=1.0, malformed=0.0)
    assert all(outcome(example).info["action_is_valid"] for example in best)
    # Training rooms have solutions of at most ten moves, five to a turn: two optimal turns solve each room.
    ends = [outcome(example) for example in best if outcome(example).done]
    assert len(ends) == 90
    assert all(node.info["success"] and node.depth <= 2 for node in ends)
    poor = shown(teaching.poor_turn, skill=0.0, malformed=0.5)
    texts = [example.answer[0] for example in poor]
    # A third of the malformed answers drop the separators, which leaves an answer of one action valid.
    bad = sum(not outcome(example).info["action_is_valid"] for example in poor) / len(poor)
    assert 0.28 <= bad <= 0.52
    assert any(text.endswith(END) for text in texts)
    assert sum("||" not in text for text in texts) / len(texts) > 0.7


def test_only_the_answers_are_learned():
    examples = [module._Example((5, 6, 7), (8, 9)), module._Example((1,), (2,))]
    ids, labels = module._padded(examples)
    assert ids.tolist() == [[5, 6, 7, 8, 9], [1, 2, 0, 0, 0]]
    assert labels.tolist() == [[-100, -100, -100, 8, 9], [-100, 2, -100, -100, -100]]
