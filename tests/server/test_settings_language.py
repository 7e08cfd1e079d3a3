"""The texts of the settings, translated by JupyterLab's own server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from jupyterlab_server.translation_utils import translator
from support.project import ROOT

from tfcluster_magic.server import app

SCHEMA = ROOT / "labextension" / "schema" / "plugin.json"


@pytest.fixture
def lab() -> Iterator[type[translator]]:
    """Yield JupyterLab's translator; afterwards, reset it to English."""
    before, bundles = translator._LOCALE, dict(translator._TRANSLATORS)
    yield translator
    translator._TRANSLATORS.clear()
    translator._TRANSLATORS.update(bundles)
    translator.set_locale(before)


def test_the_settings_are_in_the_language_of_jupyterlab(lab: type[translator]) -> None:
    """The settings form is Chinese if JupyterLab is Chinese, and English otherwise."""
    schema = json.loads(SCHEMA.read_text("utf-8"))
    assert app.translate_settings()

    lab.set_locale("zh_CN")
    chinese = lab.translate_schema(json.loads(SCHEMA.read_text("utf-8")))
    lab.set_locale("en")
    english = lab.translate_schema(json.loads(SCHEMA.read_text("utf-8")))

    assert english == schema
    for name, field in schema["properties"].items():
        assert chinese["properties"][name]["title"] != field["title"]
        assert not chinese["properties"][name]["description"].isascii()


def test_a_jupyterlab_without_these_bundles_stays_english(
    lab: type[translator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JupyterLab that stores its translations elsewhere causes no error."""
    monkeypatch.delattr(translator, "_TRANSLATORS")
    try:
        assert not app.translate_settings()
    finally:
        monkeypatch.undo()
