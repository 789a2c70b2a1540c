"""ChatPolicy: prompts as the chat template writes them, and sampled ids that are never encoded again."""

import pytest

from tests.agents.tiny import CHATML, ScriptedEngine, chatml_tokenizer
from tests.agents.worlds import rooms
from tsr_gym import Candidate, ConfigError, EngineFailed, Expand
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.trajectory import Group, harvest_all, harvest_leaves
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.policies.chat_policy import ChatPolicy, sample_seeds
from tsr_gym.agents.policies.engine import Completion
from tsr_gym.agents.policies.prompts import History, compact_prompt, messages_for, paper_prompt, plain_prompt
from tsr_gym.agents.strategies import naive
from tsr_gym_envs.sokoban.env import SokobanEnv

PROMPT = paper_prompt(SokobanEnv.instructions)
END = "<|im_end|>"


def spelled(tokenizer, text):
    """Return a text spelled in single bytes, as no encoder would write it, ending the turn."""
    letters = [tokenizer(letter, add_special_tokens=False)["input_ids"] for letter in text]
    return (*(token for ids in letters for token in ids), tokenizer.eos_token_id)


def talking(tokenizer, said, *, history="full", prompt=PROMPT):
    """Return a policy whose model always samples the same ids."""
    return ChatPolicy(ScriptedEngine(lambda prompt, seed: said), tokenizer, prompt, History.parse(history))


def written(tokenizer, messages):
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def played(policy, turns=3):
    """Play some turns, each with a sampled candidate, and return the tree."""
    env = rooms(4)
    for _ in range(turns):
        env.play(policy([(env.tree, Expand(env.cursor))])[0][0])
    return env.tree


def test_the_first_prompt_is_what_the_template_writes_and_the_forced_beginning(tokenizer):
    env = rooms(4)
    contents = (("system", PROMPT.system), ("user", PROMPT.turn(env.tree.nodes[0])))
    text = written(tokenizer, [{"role": role, "content": content} for role, content in contents])
    ids = talking(tokenizer, (5,)).prompt_ids(env.tree, 0)
    assert tokenizer.decode(ids) == text + "<think>"
    assert list(ids) == tokenizer(text + "<think>", add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("prompt", [PROMPT, compact_prompt()], ids=["paper", "compact"])
def test_messages_without_a_tree_are_those_that_the_policy_sends(tokenizer, prompt):
    answer = "</think> <answer>Up</answer>"
    tree = played(talking(tokenizer, spelled(tokenizer, answer), prompt=prompt))
    past = []
    for index, node in enumerate(tree.nodes[:3]):
        messages = messages_for(prompt, node.observation, node.info, reward=node.reward, past=past)
        text = written(tokenizer, messages) + prompt.forced
        assert tokenizer.decode(talking(tokenizer, (5,), prompt=prompt).prompt_ids(tree, index)) == text
        assert text.count(answer) == index
        assert prompt.turn(node) in text
        past = [*messages, {"role": "assistant", "content": prompt.forced + answer}]


def test_each_prompt_begins_with_the_one_before_and_the_sampled_ids(tokenizer):
    tree = played(talking(tokenizer, spelled(tokenizer, "</think> <answer>Up</answer>")))
    for node, child in zip(tree.nodes[1:], tree.nodes[2:], strict=False):
        before = node.candidate.prompt_ids + node.candidate.token_ids
        assert child.candidate.prompt_ids[: len(before)] == before
        assert len(child.candidate.prompt_ids) > len(before)


def test_ids_that_would_be_spelled_otherwise_survive_into_the_next_prompt_and_the_batch(tokenizer):
    said = spelled(tokenizer, "</think> <answer>Right || Right</answer>")
    again = tokenizer(tokenizer.decode(said), add_special_tokens=False)["input_ids"]
    # The point of the test: the text of these ids is encoded in fewer.
    assert len(again) < len(said)
    (tree,) = search([rooms(4)], talking(tokenizer, said), naive, seeds=[1])
    assert all(node.candidate.token_ids == said for node in tree.nodes[1:])
    last = tree.nodes[-1].candidate
    for turn in range(len(tree.nodes) - 2):
        start = len(tree.nodes[turn + 1].candidate.prompt_ids)
        assert last.prompt_ids[start : start + len(said)] == said
    batch = collate([Group(0, tuple(harvest_all(tree)))])
    assert batch.ids.shape[0] == 1
    assert batch.ids[batch.sampled].tolist() == list(said) * (len(tree.nodes) - 1)
    assert batch.ids[0].tolist() == [*last.prompt_ids, *said]


@pytest.mark.parametrize("ended", [True, False], ids=["the model ended its turn", "it was cut off"])
def test_the_end_of_a_turn_stands_there_once_whoever_wrote_it(tokenizer, ended):
    said = spelled(tokenizer, "words")
    tree = played(talking(tokenizer, said if ended else said[:-1]))
    text = tokenizer.decode(talking(tokenizer, (5,)).prompt_ids(tree, 3))
    # A system message, three turns of the user's and three answers; the fourth user turn makes eight.
    assert text.count(END) == 8
    assert text.count(f"words{END}\n<|im_start|>user\n") == 3


def test_another_stop_token_is_followed_by_the_templates_end(tokenizer):
    said = (*spelled(tokenizer, "words")[:-1], tokenizer.pad_token_id)
    tree = played(talking(tokenizer, said), turns=1)
    text = tokenizer.decode(talking(tokenizer, (5,)).prompt_ids(tree, 1))
    assert f"words<|endoftext|>{END}\n<|im_start|>user\n" in text


@pytest.mark.parametrize(("history", "turns"), [("markov", 0), ("window(1)", 1), ("window(2)", 2), ("window(9)", 3)])
def test_a_window_shows_the_last_turns_and_their_answers_and_no_others(tokenizer, history, turns):
    said = spelled(tokenizer, "</think> <answer>Up</answer>")
    tree = played(talking(tokenizer, said))
    ids = talking(tokenizer, said, history=history).prompt_ids(tree, 3)
    text = tokenizer.decode(ids)
    shown = [number for number in (1, 2, 3, 4) if f"\nTurn {number}:\n" in text.replace("user\n", "user\n\n")]
    assert shown == list(range(4 - turns, 5))
    assert text.count("<|im_start|>system") == 1
    assert text.count("<answer>Up</answer>" + END) == turns
    # The answers in it are the sampled ids.
    spans = [ids[start : start + len(said)] for start in range(len(ids))]
    assert spans.count(said) == turns


def test_a_candidate_is_the_forced_beginning_and_what_was_said_without_special_tokens(tokenizer):
    said = spelled(tokenizer, "so</think> <answer>Up</answer>")
    env = rooms(4)
    engine = ScriptedEngine(lambda prompt, seed: said)
    ((candidate,),) = ChatPolicy(engine, tokenizer, PROMPT, History(None))([(env.tree, Expand(0))])
    assert candidate.text == "<think>so</think> <answer>Up</answer>"
    assert (candidate.token_ids, candidate.logprobs) == (said, (0.0,) * len(said))
    env.play(candidate)
    assert env.tree.nodes[1].info["executed"] == ("Up",)


def test_a_candidate_has_the_version_of_its_weights_and_a_broken_answer_is_no_sample(tokenizer):
    env = rooms(4)
    engine = ScriptedEngine(lambda prompt, seed: (5,))
    engine.load_weights((), version=12)
    ((candidate,),) = ChatPolicy(engine, tokenizer, PROMPT, History(None))([(env.tree, Expand(0))])
    env.play(candidate)
    (trajectory,) = harvest_leaves(env.tree)
    assert (candidate.weight_version, trajectory.weight_versions) == (12, {12})

    class Aborted(ScriptedEngine):
        def generate(self, prompts, *, seeds, max_tokens=None):
            return [[Completion((5, 6), (0.0, 0.0), "abort")]]

    with pytest.raises(EngineFailed, match="aborted after 2 tokens"):
        ChatPolicy(Aborted(None), tokenizer, PROMPT, History(None))([(rooms(4).tree, Expand(0))])


def test_a_turn_that_no_model_said_is_told_in_words(tokenizer):
    env = rooms(4)
    env.step("<think>mine</think><answer>Up</answer>")
    text = tokenizer.decode(talking(tokenizer, (5,)).prompt_ids(env.tree, 1))
    assert f"assistant\n<think>mine</think><answer>Up</answer>{END}\n<|im_start|>user\nReward" in text


def test_all_wishes_of_a_round_are_one_call_of_the_engine(tokenizer):
    engine = ScriptedEngine(lambda prompt, seed: (5, 6))
    policy = ChatPolicy(engine, tokenizer, PROMPT, History(None))
    envs = [rooms(seed) for seed in (1, 2, 3)]
    answers = policy([(env.tree, Expand(0, samples)) for env, samples in zip(envs, (2, 0, 3), strict=True)])
    assert ([len(row) for row in answers], engine.calls) == ([2, 0, 3], 1)
    assert len({candidate.prompt_ids for row in answers for candidate in row}) == 2


def test_prompt_tokens_that_were_not_computed_are_charged_to_their_tree(tokenizer):
    class Cached(ScriptedEngine):
        def generate(self, prompts, *, seeds):
            self.calls += 1
            return [[Completion((5,), (0.0,), "stop", num_cached=10 + k) for k in range(len(row))] for row in seeds]

    first, second = rooms(1), rooms(2)
    policy = ChatPolicy(Cached(None), tokenizer, PROMPT, History(None))
    policy([(first.tree, Expand(0, 3)), (second.tree, Expand(0, 1)), (second.tree, Expand(0, 1))])
    assert first.tree.spent.prompt_tokens_saved == 10 + 11 + 12
    assert second.tree.spent.prompt_tokens_saved == 20


def test_seeds_depend_on_tree_place_and_number_and_not_on_the_order_of_the_rows():
    envs = [rooms(seed) for seed in (1, 2)]
    for env in envs:
        env.step("junk")
    wishes = [(env.tree, Expand(node, 3)) for env in envs for node in (0, 1)]
    seeds = sample_seeds(wishes)
    assert sample_seeds(wishes[::-1]) == seeds[::-1]
    assert [sample_seeds([wish])[0] for wish in wishes] == seeds
    assert len({seed for row in seeds for seed in row}) == 12
    # A wish in two parts is the same wish.
    tree = envs[0].tree
    split = sample_seeds([(tree, Expand(0, 1)), (tree, Expand(1, 3)), (tree, Expand(0, 2))])
    assert [*split[0], *split[2]] == seeds[0]
    # The node 0 has a child already; a tree without it numbers its children from the beginning.
    assert sample_seeds([(rooms(1).tree, Expand(0, 4))])[0][1:] == seeds[0]


def test_a_seed_does_not_depend_on_the_number_that_a_node_happens_to_have():
    first, second = rooms(3), rooms(3)
    turn = [Candidate("said nothing")]
    first.expand(0, turn * 2)
    first.expand(1, turn)
    second.expand(0, turn)
    second.expand(1, turn)
    second.expand(0, turn)
    # Node 2 of one tree is node 3 of the other: the second child of the first node.
    one, two = first.tree.branch(2), second.tree.branch(3)
    assert one == two == (1,)
    assert sample_seeds([(first.tree, Expand(2, 2))]) == sample_seeds([(second.tree, Expand(3, 2))])


TEMPLATES = {
    "only the last message": CHATML.replace("in messages %}", "in messages[-1:] %}"),
    "no answers": CHATML.replace("in messages %}", "in messages if message.role != 'assistant' %}"),
    "only the answers before": "{% for message in messages %}"
    "{% if message.role == 'assistant' or loop.last %}{{ message.content }}{% endif %}{% endfor %}",
    "everything twice": CHATML.replace("{{ message.content }}", "{{ message.content }}{{ message.content }}"),
    "shouted": CHATML.replace("{{ message.content }}", "{{ message.content | replace('text', 'TEXT') }}"),
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_that_drops_or_changes_messages_is_refused(template):
    with pytest.raises(ConfigError, match="drops, repeats or rewrites messages"):
        talking(chatml_tokenizer(TEMPLATES[template]), (5,))


def test_a_template_that_refuses_a_system_message_says_so_in_our_words():
    strict = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML
    with pytest.raises(ConfigError, match=r"refuses the messages of an episode .*no system role"):
        talking(chatml_tokenizer(strict), (5,))
    talking(chatml_tokenizer(strict), (5,), prompt=compact_prompt())


@pytest.mark.parametrize("template", [None, ""])
def test_a_tokenizer_without_a_chat_template_is_refused(template):
    with pytest.raises(ConfigError, match="no chat template: wanted an instruction-tuned model"):
        talking(chatml_tokenizer(template), (5,))


# The parts of published templates that drop thoughts: Qwen3 before the last message of the user, DeepSeek-R1 always.
QWEN3 = (
    "{% set ns = namespace(last=0) %}{% for message in messages %}{% if message.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{% if message.role == 'assistant' and '</think>' in message.content "
    "and loop.index0 < ns.last %}{{ message.content.split('</think>')[-1].lstrip('\\n') }}"
    "{% else %}{{ message.content }}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
R1 = (
    "{% for message in messages %}{% if message.role == 'user' %}<User>{{ message.content }}"
    "{% elif message.role == 'assistant' %}<Assistant>{{ message.content.split('</think>')[-1] }}<|im_end|>"
    "{% else %}{{ message.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<Assistant><think>\n{% endif %}"
)


@pytest.mark.parametrize(("template", "begin"), [(QWEN3, "<think>\n"), (R1, "")], ids=["qwen3", "r1"])
def test_without_thoughts_each_turn_is_a_row_with_the_prompt_that_the_template_writes(template, begin):
    tokenizer = chatml_tokenizer(template)
    said = spelled(tokenizer, f"{begin}a thought\n</think>\n\n<answer>Up</answer>")
    prompt = plain_prompt("Rules.")
    tree = played(talking(tokenizer, said, history="without_thoughts", prompt=prompt))
    past = []
    for node, child in zip(tree.nodes[:3], tree.nodes[1:], strict=True):
        past = messages_for(prompt, node.observation, node.info, past=past)
        assert tokenizer.decode(child.candidate.prompt_ids) == written(tokenizer, past)
        assert child.candidate.token_ids == said
        past.append({"role": "assistant", "content": child.candidate.text})
    text = tokenizer.decode(tree.nodes[3].candidate.prompt_ids)
    assert (text.count("a thought"), text.count("<answer>Up</answer>")) == (0, 2)
    batch = collate([Group(0, tuple(harvest_leaves(tree)))])
    assert batch.ids.shape[0] == 3
    for row, sampled, node in zip(batch.ids, batch.sampled, tree.nodes[1:], strict=True):
        assert tuple(row[sampled].tolist()) == said
        prompt_ids = node.candidate.prompt_ids
        assert tuple(row[: len(prompt_ids)].tolist()) == prompt_ids


def test_a_template_that_keeps_thoughts_is_refused_without_thoughts(tokenizer):
    with pytest.raises(ConfigError, match="does not drop earlier thoughts here: wanted history=full"):
        talking(tokenizer, (5,), history="without_thoughts")
