"""The tokenizer of words: one token each, with blanks when it decodes, and the same after loading."""

import pytest
from transformers import AutoTokenizer

from tsr_gym.agents.models.tokenizer import word_tokenizer

WORDS = ("red", "shoes", "redshoes", "search", "click", "[", "]", "<answer>", "</answer>", "women's", "4.50", ",")


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(WORDS)


def words(tokenizer, text):
    return tokenizer.convert_ids_to_tokens(tokenizer(text, add_special_tokens=False)["input_ids"])


def test_a_word_and_its_blank_are_one_token_and_decoding_keeps_the_blanks(tokenizer):
    text = " <answer> search [ red shoes , women's 4.50 ] </answer>"
    assert words(tokenizer, text) == [f" {word}" for word in text.split()]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_a_longer_word_is_not_read_as_a_shorter_one_and_a_rest(tokenizer):
    assert words(tokenizer, " redshoes red") == [" redshoes", " red"]


def test_what_is_no_word_falls_apart_into_bytes_and_comes_back(tokenizer):
    for text in ("Zebra!", " redder é", "shoes"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert len(ids) > 1
        assert tokenizer.decode(ids) == text


def test_it_is_read_again_as_what_it_was_saved(tokenizer, tmp_path):
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


def test_the_order_of_the_words_does_not_matter():
    assert word_tokenizer(WORDS).get_vocab() == word_tokenizer(WORDS[::-1]).get_vocab()
