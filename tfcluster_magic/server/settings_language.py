"""The texts of our settings in JupyterLab's language.

JupyterLab's server translates a settings schema with the catalogs of installed language packs, and
with no others: it has no door for an extension's own. So it is given a bundle of ours for our
domain. Promises that a JupyterLab that keeps its bundles elsewhere shows these texts in English,
and nothing worse.
"""

from __future__ import annotations

import gettext

from ..i18n import LOCALE_DIR

DOMAIN = "tfcluster"
"""That of the page's texts, too: locale/<language>/LC_MESSAGES/tfcluster.mo."""


def provide() -> bool:
    """Have our schema translated with our catalog; says whether this JupyterLab can."""
    try:
        from jupyterlab_server.translation_utils import TranslationBundle, translator

        class Bundle(TranslationBundle):
            """Our catalog, wherever the language packs are."""

            def update_locale(self, locale_: str) -> None:
                """Speak this language from now on; English when there is no catalog."""
                self._locale = locale_
                self._translator = gettext.translation(
                    DOMAIN, localedir=LOCALE_DIR, languages=[locale_], fallback=True
                )

        translator._TRANSLATORS[DOMAIN] = Bundle(DOMAIN, translator._LOCALE)
    except (ImportError, AttributeError, TypeError):
        return False
    return True
