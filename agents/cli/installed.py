"""What is installed of what tsr-gym can use: read from the installed packages' own records, importing none of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

# What each extra is for, in the order in which they are shown.
BRINGS = {
    "cli": "the tsr command",
    "envs": "WebShop, question answering, compiled batches, the Sokoban solver and its generators",
    "agents": "language models: train, eval, base-model, pictures of reports",
    "openai": "models behind OpenAI-compatible servers: eval and calibrate",
    "lora": "training a few matrices instead of the whole model",
    "serve": "the shop as a web site, the retrieval server and its client",
    "render": "windows: render_mode='human'",
    "parquet": "questions from Parquet files",
    "dense": "retrieval by embeddings",
    "opensearch": "retrieval from an OpenSearch cluster",
    "pyserini": "Lucene itself for WebShop's search, which needs Java",
    "spacy": "the nouns of titles, as WebShop's original reward has them",
    "vllm": "sampling by vLLM: train, eval and calibrate",
    "ray": "searches in workers, on one machine or several",
    "textworld": "TextWorld's generated games",
    "jericho": "stories of the Z-machine, such as Zork",
    "textarena": "TextArena's games for one player",
    "verifiers": "trees as traces of verifiers, and its tasksets",
    "openenv": "worlds behind OpenEnv's server",
    "trl": "the bridge to TRL's trainers",
    "verl": "the bridge to verl's trainer",
    "bench": "what the speed scripts compare with",
    "dev": "tests, types and lint of the package itself",
}


@dataclass(frozen=True, slots=True)
class Extra:
    """What an extra is for, and whether it is there.

    Attributes:
        name: As pip takes it; empty for what everybody gets.
        brings: What it is for.
        versions: Of those of its packages that are installed.
        lacking: What is missing or too old, in words.
        install: The line that completes it.
    """

    name: str
    brings: str
    versions: dict[str, str]
    lacking: tuple[str, ...]
    install: str

    @property
    def complete(self) -> bool:
        """Whether all of it is there."""
        return not self.lacking


def extras() -> list[Extra] | None:
    """Return the core, then every extra; None where tsr-gym is imported but not installed, so that nobody knows."""
    try:
        needed = [Requirement(line) for line in requires("tsr-gym") or ()]
    except PackageNotFoundError:
        return None
    core = [need for need in needed if need.marker is None]
    found = [_look("", "environments, snapshots, trees, strategies", core)]
    return found + [_look(name, brings, _needs_of(name, needed)) for name, brings in BRINGS.items()]


def _needs_of(extra: str, needed: Sequence[Requirement]) -> list[Requirement]:
    """Return what an extra requires, each distribution once, with those of the extras that it refers to."""
    own = [need for need in needed if need.marker is not None and need.marker.evaluate({"extra": extra})]
    needs = {need.name: need for need in own if need.name != "tsr-gym"}
    for other in sorted(name for need in own if need.name == "tsr-gym" for name in need.extras):
        needs.update({need.name: need for need in _needs_of(other, needed)})
    return list(needs.values())


def _look(name: str, brings: str, needed: Sequence[Requirement]) -> Extra:
    versions, lacking = {}, []
    for need in needed:
        found = installed_version(need.name)
        if found is not None:
            versions[need.name] = found
        if found is None:
            lacking.append(need.name)
        elif not need.specifier.contains(found, prereleases=True):
            lacking.append(f"{need.name}{need.specifier} (found {found})")
    install = f"pip install 'tsr-gym[{name}]'" if name else "pip install --upgrade tsr-gym"
    return Extra(name, brings, versions, tuple(lacking), install)


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, which is not imported; None where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
