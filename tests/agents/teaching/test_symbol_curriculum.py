"""The course of worlds in plain sight: who plays its demonstrations, and what of them is learned."""

from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.models.tiny_model import END
from tsr_gym.agents.teaching import symbol_curriculum as module


def test_demonstrations_are_optimal_random_or_malformed_as_often_as_the_recipe_says():
    pool = EnvPool("sokoban", {"obs_type": "compact", "split": "train"}, think=False)

    class Spelling:
        """A policy's prompts and tokens, as plain text."""

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
    # Train rooms have solutions of at most ten moves, five to a turn: two optimal turns solve every one.
    ends = [outcome(example) for example in best if outcome(example).done]
    assert len(ends) == 90
    assert all(node.info["success"] and node.depth <= 2 for node in ends)
    poor = shown(teaching.poor_turn, skill=0.0, malformed=0.5)
    said = [example.answer[0] for example in poor]
    # One kind in three drops the separators, which is no fault where there is one action.
    bad = sum(not outcome(example).info["action_is_valid"] for example in poor) / len(poor)
    assert 0.28 <= bad <= 0.52
    assert any(text.endswith(END) for text in said)
    assert sum("||" not in text for text in said) / len(said) > 0.7


def test_only_the_answers_are_learned():
    examples = [module._Example((5, 6, 7), (8, 9)), module._Example((1,), (2,))]
    ids, labels = module._padded(examples)
    assert ids.tolist() == [[5, 6, 7, 8, 9], [1, 2, 0, 0, 0]]
    assert labels.tolist() == [[-100, -100, -100, 8, 9], [-100, 2, -100, -100, -100]]
