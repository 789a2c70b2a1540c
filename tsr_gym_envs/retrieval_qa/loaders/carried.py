"""The passages that question sets carry with them, and the ids by which questions name them."""

from collections.abc import Iterator
from hashlib import blake2b

from tsr_gym_envs.retrieval_qa.loaders.placed_record import PlacedRecord


def passage_id(title: str, text: str) -> str:
    """Return the id of a passage: the same wherever title and text are the same."""
    return blake2b(f"{title}\0{text}".encode(), digest_size=8).hexdigest()


def context_of(row: PlacedRecord) -> Iterator[tuple[str, str]]:
    """Yield title and text of the paragraphs of a HotpotQA or 2WikiMultihopQA record."""
    for title, sentences in row.tuples("context", ("title", "sentences")):
        if not isinstance(title, str) or not isinstance(sentences, list):
            raise row.fault("pairs of a title and its sentences under 'context'", [title, sentences])
        text = " ".join(str(sentence).strip() for sentence in sentences)
        yield row.whole("context", title), row.whole("context", text)


def supporting_titles(row: PlacedRecord) -> tuple[str, ...]:
    """Return the titles of the supporting paragraphs of such a record, each once."""
    facts = row.tuples("supporting_facts", ("title", "sent_id"))
    if not all(isinstance(title, str) for title, _ in facts):
        raise row.fault("pairs of a title and a sentence's number under 'supporting_facts'", facts)
    return tuple(dict.fromkeys(title for title, _ in facts))


def supporting_of(row: PlacedRecord) -> tuple[str, ...]:
    """Return the ids of the supporting paragraphs of such a record; () where it does not carry all of them."""
    wanted = supporting_titles(row)
    ids = {title: passage_id(title, text) for title, text in context_of(row)}
    return tuple(ids[title] for title in wanted) if ids.keys() >= set(wanted) else ()


def paragraphs_of(row: PlacedRecord) -> Iterator[tuple[str, str, bool]]:
    """Yield title, text and whether it supports the answer of the paragraphs of a MuSiQue record."""
    for paragraph in row.rows("paragraphs"):
        is_supporting = paragraph.value("is_supporting")
        if not isinstance(is_supporting, bool):
            raise paragraph.fault("true or false under 'is_supporting'", is_supporting)
        yield paragraph.text("title"), paragraph.text("paragraph_text"), is_supporting


def metadata_of(row: PlacedRecord) -> Iterator[tuple[str, str]]:
    """Yield title and text of the paragraphs that FlashRAG keeps in the metadata of HotpotQA and 2WikiMultihopQA."""
    if row.fields.get("metadata") and "context" in row.part("metadata").fields:
        yield from context_of(row.part("metadata"))


def articles_of(row: PlacedRecord) -> Iterator[tuple[str, str]]:
    """Yield title and text of the paragraphs of a SQuAD article."""
    title = row.text("title")
    for paragraph in row.rows("paragraphs"):
        yield title, paragraph.text("context")
