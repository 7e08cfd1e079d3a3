"""Configuration of the site that `make docs` builds from this folder.

Ref: https://www.sphinx-doc.org/en/master/usage/configuration.html
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent

project = "TFCluster"
author = "TFCluster contributors"
copyright = author  # noqa: A001 (Sphinx's name)
language = "en"

extensions = ["myst_parser", "sphinx_copybutton"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

html_theme = "pydata_sphinx_theme"
html_title = "TFCluster"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "footer_start": ["copyright"],
    "footer_end": [],
    "navbar_end": ["theme-switcher"],
    "show_prev_next": False,
    "show_toc_level": 2,
    "use_edit_page_button": False,
}
html_sidebars = {"index": [], "tutorial/*": []}

LINK = re.compile(r"\[([^\]]*)\]\((\.\.?/[^)#\s]*)(?:#[^)\s]*)?\)")


def name_files_of_the_repository(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace each link that leaves docs/ by the path of the file, because the site has only pages.

    A missing file causes a warning, which fails the build.
    """
    folder = (DOCS / docname).parent

    def named(link: re.Match[str]) -> str:
        text, target = link[1], Path(os.path.normpath(folder / link[2]))
        if target.is_relative_to(DOCS):
            return link[0]
        if not target.exists():
            logging.getLogger(__name__).warning("no file %s", link[2], location=docname)
        path = f"`{target.relative_to(ROOT)}`"
        return path if text.strip("`") == path.strip("`") else f"{text} ({path})"

    source[0] = LINK.sub(named, source[0])


CHINESE = "[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]"
LINE_BREAK = re.compile(rf"(?<={CHINESE})\n(?={CHINESE})")


def join_chinese_lines(_app: Sphinx, _docname: str, source: list[str]) -> None:
    """Remove line breaks between two Chinese characters, which browsers show as spaces."""
    source[0] = LINE_BREAK.sub("", source[0])


def setup(app: Sphinx) -> None:
    """Register what this file adds to Sphinx."""
    app.connect("source-read", name_files_of_the_repository)
    app.connect("source-read", join_chinese_lines)
