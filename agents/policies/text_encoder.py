"""From texts to token ids: the tokenizer's backend, and a dictionary where a text consists of whole added tokens."""

import re
from collections.abc import Callable, Mapping
from typing import Any

Encode = Callable[[str], tuple[int, ...]]

# A tag, the separator of actions, a square such as b3, a word, a whole number, or any other symbol alone.
SYMBOL = re.compile(r"</?[a-z]+>|\|\||[a-z]{1,2}[0-9]+|[A-Z]?[a-z]+|[0-9]+|\S")
# A tag, also after a blank, or a word after a blank.
_WORD = re.compile(r" ?<[^ <>]+>| [^ <]+")


def text_encoder(tokenizer: Any) -> Encode:
    """Return a function from a text to the ids that a tokenizer encodes it as.

    A call of a tokenizer of transformers takes twice as long as the encoding inside it, so its backend is called where
    the class adds nothing. Texts of small models, in which every word is one token, are looked up.
    """
    # Imported here, because a policy without a model needs no tokenizer.
    from transformers import PreTrainedTokenizerFast

    def call(text: str) -> tuple[int, ...]:
        return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])

    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return call
    if type(tokenizer)._encode_plus is not PreTrainedTokenizerFast._encode_plus:
        return call
    backend = tokenizer.backend_tokenizer
    look_up = _whole_tokens(backend)

    def encode(text: str) -> tuple[int, ...]:
        # Other users of the tokenizer may have left these in its backend; a call takes them back.
        if backend.truncation or backend.padding or backend.encode_special_tokens:
            return call(text)
        return look_up(text) or tuple(backend.encode(text, add_special_tokens=False).ids)

    return call if tokenizer.split_special_tokens else encode


def _whole_tokens(backend: Any) -> Encode:
    """Return a function from a text to its ids, which are empty where it does not consist of added tokens alone.

    A backend cuts a text at the added tokens first: at the leftmost of them, and there at the longest. The two patterns
    above find the same ones where every added token is a whole match of its pattern. Three times as fast.
    """
    added = backend.get_added_tokens_decoder()
    if any(token.normalized or token.single_word for token in added.values()):
        return _nothing
    bare = {token.content: number for number, token in added.items() if not (token.lstrip or token.rstrip)}
    stripped = {token.content: number for number, token in added.items() if token.lstrip and token.rstrip}
    if len(bare) == len(added) and all(map(_WORD.fullmatch, bare)):
        return _word_encoder(bare)
    if len(bare) + len(stripped) == len(added) and all(SYMBOL.findall(token) == [token] for token in stripped):
        return _symbol_encoder(stripped, bare)
    return _nothing


def _nothing(text: str) -> tuple[int, ...]:
    return ()


def _word_encoder(ids: Mapping[str, int]) -> Encode:
    def encode(text: str) -> tuple[int, ...]:
        words = _WORD.findall(text)
        try:
            return tuple([ids[word] for word in words]) if "".join(words) == text else ()
        except KeyError:
            return ()

    return encode


def _symbol_encoder(ids: Mapping[str, int], bare: Mapping[str, int]) -> Encode:
    """Return the encoder of symbols that take the blanks around them; a bare token may begin the text."""

    def encode(text: str) -> tuple[int, ...]:
        first: tuple[int, ...] = ()
        for token, number in bare.items():
            if text.startswith(token):
                first, text = (number,), text[len(token) :]
                break
        # Python and the backend agree on the blanks of such texts.
        if not text.replace("\n", " ").isprintable() or not text.isascii() or any(token in text for token in bare):
            return ()
        symbols = SYMBOL.findall(text)
        try:
            return first + tuple([ids[symbol] for symbol in symbols]) if symbols or not text else ()
        except KeyError:
            return ()

    return encode
