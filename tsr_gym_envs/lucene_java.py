"""Lucene in this process: the Java machine, and Anserini called directly through the jar within Pyserini.

Pyserini's own modules, and torch with them, are not imported. Pyserini 0.25.0 runs on Java 17; from 0.35 on Java 21 is
needed.
"""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tsr_gym.errors import ConfigError, InvalidCorpus
from tsr_gym.optional import require

MAX_TERMS = 1 << 20


class Java:
    """The running Java machine.

    Attributes:
        exceptions: The exception type that Java calls raise.
    """

    def __init__(self) -> None:
        require("jnius", "pyserini")
        require("pyserini", "pyserini")
        import jnius_config

        if not jnius_config.vm_running:
            jnius_config.add_classpath(str(anserini_jar()))
        try:
            import jnius
        except Exception as error:
            # pyjnius raises plain exceptions of several types if it finds no Java.
            raise ConfigError(f"wanted Java 17 or later, found none that starts: {error}; set JAVA_HOME") from error
        self.exceptions: type[Exception] = jnius.JavaException
        self._autoclass: Any = jnius.autoclass

    def named(self, name: str) -> Any:
        """Return a Java class."""
        try:
            return self._autoclass(name)
        except self.exceptions as error:
            raise ConfigError(
                f"Java does not load {name}: {error}; Pyserini 0.25.0 runs on Java 17, from 0.35 on it needs 21"
            ) from error


@lru_cache(maxsize=1)
def java() -> Java:
    """Return this process's Java machine, started at the first call."""
    started = Java()
    level = started.named("org.apache.logging.log4j.Level")
    started.named("org.apache.logging.log4j.core.config.Configurator").setAllLevels("", level.WARN)
    # Lucene refuses queries of more than 1024 terms by default, but a long query of an agent is not an error.
    started.named("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MAX_TERMS)
    return started


def anserini_jar() -> Path:
    """Return the jar within the installed Pyserini.

    Raises:
        ConfigError: Pyserini has no such jar.
    """
    spec = find_spec("pyserini")
    folders = spec.submodule_search_locations if spec else None
    jars = [jar for folder in folders or () for jar in Path(folder).glob("resources/jars/anserini-*-fatjar.jar")]
    if not jars:
        raise ConfigError(f"wanted anserini-*-fatjar.jar within Pyserini, found none in {folders}; install it again")
    return jars[0]


def lucene_searcher(index: Path, k1: float, b: float) -> Any:
    """Return Anserini's ``SimpleSearcher`` with BM25 over an index.

    Raises:
        InvalidCorpus: The folder is no index that it reads.
    """
    searcher_class = java().named("io.anserini.search.SimpleSearcher")
    try:
        searcher = searcher_class(str(index))
    except java().exceptions as error:
        raise InvalidCorpus(f"{index}: wanted a Lucene index that this Anserini reads: {error}") from error
    searcher.set_bm25(k1, b)
    return searcher
