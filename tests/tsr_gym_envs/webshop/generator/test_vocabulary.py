"""The words of the generator: every template can be filled, and every kind has enough sentences."""

from string import Formatter

import pytest

from tsr_gym_envs.webshop.generator.products import shown_options
from tsr_gym_envs.webshop.generator.sketch import fitting_styles
from tsr_gym_envs.webshop.generator.vocabulary import CATEGORIES, ROLES, vocabulary
from tsr_gym_envs.webshop.state import BUTTONS

WORDS = {"this", "This", "it", "them", "is", "has", "s", "noun", "Brand", "material", "code"}
KINDS = [
    (family, kind) for category in vocabulary().categories for family in category.families for kind in family.kinds
]


def names(template):
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


def test_categories_have_the_shares_of_the_real_small_set():
    shares = {category.name: category.share for category in vocabulary().categories}
    assert tuple(shares) == CATEGORIES
    assert shares == {"beauty": 238, "electronics": 229, "garden": 216, "fashion": 200, "grocery": 117}


def test_there_are_many_kinds_and_no_query_stands_for_two():
    queries = [kind.query for _, kind in KINDS]
    assert len(set(queries)) == len(queries) > 250
    assert all(len(category.families) >= 5 for category in vocabulary().categories)
    assert all(sum(len(family.kinds) for family in category.families) >= 30 for category in vocabulary().categories)


@pytest.mark.parametrize(("family", "kind"), KINDS, ids=[kind.query for _, kind in KINDS])
def test_every_sentence_of_a_kind_can_be_filled_in(family, kind):
    defined = WORDS | {name for name, _, _ in family.numbers}
    says = [text for attribute in kind.attributes for text in attribute.says]
    values = [value for _, source in kind.options for value in source.values]
    for template in [*kind.details, *family.intro, *family.says, *says, *values, *vocabulary().closing]:
        assert names(template) <= defined, template


@pytest.mark.parametrize(("family", "kind"), KINDS, ids=[kind.query for _, kind in KINDS])
def test_a_kind_has_nouns_styles_and_attributes_enough(family, kind):
    assert len(kind.nouns) >= 2
    assert all(len(fitting_styles(kind, noun)) >= 2 for noun in kind.nouns)
    assert len(kind.attributes) >= 6
    assert all(" " in text and text.endswith((".", "?", "!")) for text in (*family.intro, *family.says))
    # Headwords are what bullets may begin with.
    assert all(": " in text for text in family.says)


def test_attributes_occur_in_sentences_that_contain_their_words():
    attributes = {attribute for _, kind in KINDS for attribute in kind.attributes}
    assert {attribute.role for attribute in attributes} == set(ROLES)
    for attribute in attributes:
        assert len(attribute.says) >= 2
        words = set(attribute.phrase.split(" "))
        for text in attribute.says:
            words = set(text.lower().replace(".", " ").replace(",", " ").replace(":", " ").replace(";", " ").split())
            assert words & words or attribute.phrase[:5] in text.lower(), (attribute.phrase, text)
        assert attribute.words in attribute.rivals or not attribute.rivals


def test_option_values_can_be_clicked():
    for _, kind in KINDS:
        for name, source in kind.options:
            (values,) = shown_options({name: list(source.values)}).values()
            assert len(set(values)) == len(values)
            assert not set(values) & set(BUTTONS)
            assert not any(letter in value for value in values for letter in "[]\n")


def test_no_two_options_of_a_kind_have_a_value_in_common():
    for _, kind in KINDS:
        values = [value.lower() for _, source in kind.options for value in source.values]
        assert len(set(values)) == len(values), kind.query


def test_instructions_begin_in_thirty_ways_or_more():
    assert len(set(vocabulary().openers)) >= 30
    for request in vocabulary().requests:
        assert {"thing", "that", "options"} <= names(request) <= {"thing", "that", "options", "it"}
