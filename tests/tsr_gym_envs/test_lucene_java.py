"""Java and Lucene where its libraries are missing; with_lucene.py tests it where they are installed."""

import pytest

from tsr_gym import ConfigError, MissingExtra
from tsr_gym_envs import lucene_java
from tsr_gym_envs.lucene_java import Java, anserini_jar


@pytest.mark.parametrize("missing", ["jnius", "pyserini"])
def test_what_is_missing_is_named_with_its_extra(monkeypatch, missing):
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda name: None if name == missing else object())
    with pytest.raises(MissingExtra, match=rf"{missing}.*tsr-gym\[pyserini\]"):
        Java()


def test_a_pyserini_without_its_jar_is_named(tmp_path, monkeypatch):
    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(lucene_java, "find_spec", lambda name: Spec)
    with pytest.raises(ConfigError, match="wanted anserini-"):
        anserini_jar()
    jar = tmp_path / "resources" / "jars" / "anserini-0.25.0-fatjar.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    assert anserini_jar() == jar
