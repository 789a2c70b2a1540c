"""The shop's search compared with Lucene itself; `make test-lucene` runs it where Pyserini's jar and Java are."""

from tsr_gym_envs.webshop.shop import open_index


def test_lucene_itself_finds_exactly_the_same(real_catalogue, golden):
    ours, lucene = open_index(real_catalogue), open_index(real_catalogue, engine="pyserini")
    for row in golden("webshop/search.jsonl"):
        assert lucene.search(row["query"]) == ours.search(row["query"]), row["query"]
        assert lucene.rows(row["query"]) == ours.rows(row["query"])
