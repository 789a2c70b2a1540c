"""`tsr retrieval`: index a corpus, and serve an index to other trainers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import check_there, progress_bar
from tsr_gym.optional import require


@dataclass(frozen=True, slots=True)
class IndexArgs:
    """Index a corpus by BM25. Run it again after an interruption; an old index stays until the new one is complete."""

    corpus: Annotated[Path, tyro.conf.Positional]
    """Passages, a JSON object with "id" and "contents", or with "id", "title" and "text", a line."""
    out: Path
    """Folder of the index."""
    link: bool = False
    """Name the corpus in the index instead of copying it; the file must then stay as it is."""


@dataclass(frozen=True, slots=True)
class ServeArgs:
    """Serve an index over HTTP: POST /retrieve in both published dialects, GET /health, GET /metrics."""

    index: Path
    """Folder of the index."""
    host: str = "127.0.0.1"
    """Address to listen on; every client that reaches it can search."""
    port: int = 8000
    """Port, 0 for any free one."""
    topk: int = 3
    """Passages per query if a request gives no number."""
    max_topk: int = 1000
    """Most passages per query."""
    max_queries: int = 1024
    """Most queries per request."""
    max_query: int = 10_000
    """Most characters of a query."""
    max_body: int = 4 * 2**20
    """Most bytes per request."""
    max_per_client: int = 512
    """Most open connections per address."""
    read_timeout: float = 30.0
    """Most seconds that a client may take to send a request."""
    threads: int = 2
    """Searches at the same time."""


Args = (
    Annotated[IndexArgs, tyro.conf.subcommand(name="index")] | Annotated[ServeArgs, tyro.conf.subcommand(name="serve")]
)


def main(args: list[str]) -> int:
    """Index or serve."""
    description = "Search a corpus by BM25 as Lucene and Pyserini do."
    options = read_arguments(Args, args, prog="tsr retrieval", description=description)
    return _index(options) if isinstance(options, IndexArgs) else _serve(options)


def _index(options: IndexArgs) -> int:
    require("numba", "envs")
    from tsr_gym_envs.retrieval_qa.corpus import build_index, open_corpus

    check_there(options.corpus)
    with progress_bar() as watch:
        build_index(options.corpus, options.out, watch, link=options.link)
    print(f"{options.out}: {len(open_corpus(options.out)):,} passages")
    return 0


def _serve(options: ServeArgs) -> int:
    require("numba", "envs")
    require("starlette", "serve")
    require("uvicorn", "serve")
    from tsr_gym_envs.retrieval_qa.server import ServerLimits, open_retriever, retrieval_app
    from tsr_gym_envs.serving import ConnectionLimits, serve

    check_there(options.index)
    retriever = open_retriever(options.index)
    # The first search loads compiled code, so it runs before the server reports that it is ready.
    retriever.retrieve(["first"], 1)
    most = ServerLimits(
        default_k=options.topk,
        max_k=options.max_topk,
        max_queries=options.max_queries,
        max_query=options.max_query,
        max_body=options.max_body,
    )
    app = retrieval_app(retriever, limits=most, threads=options.threads)
    connections = ConnectionLimits(max_per_client=options.max_per_client, read_timeout_s=options.read_timeout)

    def ready(url: str) -> None:
        print(f"{url}/retrieve: {options.index}, digest {retriever.digest}", flush=True)

    serve(app, host=options.host, port=options.port, limits=connections, ready=ready)
    return 0
