"""Tokenizers: loaded as they were saved, and one token per word."""

import json

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.agents.tiny import chatml_tokenizer
from tsr_gym import CheckpointError
from tsr_gym.agents.models.language_model import LanguageModel, load_policy, save_policy
from tsr_gym.agents.models.settings import ModelCard
from tsr_gym.agents.models.tiny_model import tiny_model
from tsr_gym.agents.models.tokenizer import load_tokenizer, spelling_of, word_tokenizer

WORDS = ("<unk>", "red", "shoes", "push", "the", "box")


def word_level():
    """Return a tokenizer of whole words, as users make them."""
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token="<unk>", pad_token="<unk>")


def saved(folder, tokenizer, **config):
    """Write a model, its tokenizer and changes of the tokenizer's configuration, without a card."""
    tiny_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    return folder


def test_a_tokenizer_of_whole_words_beside_a_qwen_model_is_read_as_what_it_is(tmp_path):
    folder = saved(tmp_path, word_level())
    # The trap: transformers reads bytes, without any error, and knows none of the words.
    assert AutoTokenizer.from_pretrained(folder)("red shoes")["input_ids"] != [1, 2]
    assert load_tokenizer(folder)("red shoes")["input_ids"] == [1, 2]
    assert load_policy(folder, device=torch.device("cpu")).tokenizer("push the box")["input_ids"] == [3, 4, 5]


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3", "gpt2", "bert", "gemma", "gpt_neox", "t5", "opt"])
def test_a_tokenizer_without_its_vocabulary_is_refused(tmp_path, model_type):
    # Transformers reads these folders without an error.
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(CheckpointError, match=r"wanted the tokenizer's tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_that_is_read_as_another_kind_is_refused_by_both_names(tmp_path):
    folder = saved(tmp_path, word_level(), tokenizer_class="WordsOfMyOwn")
    with pytest.raises(CheckpointError, match=r"saved as WordsOfMyOwn and is read as \w+"):
        load_policy(folder, device=torch.device("cpu"))


def test_a_model_of_ours_is_refused_where_its_tokenizer_spells_otherwise_than_at_saving(tmp_path):
    tokenizer = word_tokenizer(["red", "shoes"])
    save_policy(LanguageModel(tiny_model(tokenizer), tokenizer, ModelCard()), tmp_path)
    assert load_tokenizer(tmp_path)(" red shoes")["input_ids"] == tokenizer(" red shoes")["input_ids"]
    word_tokenizer(["red", "ties"]).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="wanted ids"):
        load_policy(tmp_path, device=torch.device("cpu"))


@pytest.mark.parametrize("make", [chatml_tokenizer, lambda: word_tokenizer(["red", "shoes", "box"])])
def test_other_tokenizers_come_back_with_the_same_spelling(tmp_path, make):
    tokenizer = make()
    assert spelling_of(load_tokenizer(saved(tmp_path, tokenizer))) == spelling_of(tokenizer)


def test_a_spelling_holds_words_from_all_of_the_vocabulary():
    tokenizer = word_tokenizer([f"w{number}" for number in range(1000)])
    ((text, ids),) = spelling_of(tokenizer).items()
    assert len({number for number in ids if number > 300}) > 40
    assert tokenizer(text)["input_ids"] == ids


SHOP_WORDS = ("red", "shoes", "redshoes", "search", "click", "[", "]", "<answer>", "</answer>", "women's", "4.50", ",")


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(SHOP_WORDS)


def words(tokenizer, text):
    return tokenizer.convert_ids_to_tokens(tokenizer(text, add_special_tokens=False)["input_ids"])


def test_a_word_and_its_blank_are_one_token_and_decoding_keeps_the_blanks(tokenizer):
    text = " <answer> search [ red shoes , women's 4.50 ] </answer>"
    assert words(tokenizer, text) == [f" {word}" for word in text.split()]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_longer_words_come_first_and_what_is_no_word_falls_apart_into_bytes(tokenizer, tmp_path):
    assert words(tokenizer, " redshoes red") == [" redshoes", " red"]
    for text in ("Zebra!", " redder é", "shoes"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert len(ids) > 1
        assert tokenizer.decode(ids) == text
    assert word_tokenizer(SHOP_WORDS).get_vocab() == word_tokenizer(SHOP_WORDS[::-1]).get_vocab()
    tokenizer.save_pretrained(tmp_path)
    text = " search [ red shoes ] </answer> Zebra"
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert again.decode(again(text)["input_ids"]) == text


def test_the_template_writes_a_blank_before_every_message(tokenizer):
    messages = [
        {"role": "user", "content": "red shoes"},
        {"role": "assistant", "content": " <answer> click"},
        {"role": "user", "content": "red"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<user> red shoes<assistant> <answer> click<|im_end|><user> red<assistant>"
    assert words(tokenizer, text)[:4] == ["<user>", " red", " shoes", "<assistant>"]
