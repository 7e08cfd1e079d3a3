"""The extension as Jupyter Server loads it: its routes, their OpenAPI document, its settings."""

from __future__ import annotations

import gettext
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from jupyter_server.extension.application import ExtensionApp
from jupyter_server.utils import url_path_join
from traitlets import Bool

from ..backends.base import Options
from ..i18n import LOCALE_DIR
from ..spec import Model, TFCluster
from . import launch, runs, tensorboard_routes
from .base import TFClusterHandler, guarded
from .launch import Kernel, LaunchBody, RerunBody
from .runs import VERB_BODIES
from .service import Service
from .tensorboard_routes import BoardBody

OPENAPI_FILE = Path(__file__).with_name("openapi.yaml")
_OTHER_MODELS = (TFCluster, Options, LaunchBody, RerunBody, BoardBody, Kernel)
OPENAPI_MODELS = (*_OTHER_MODELS, *VERB_BODIES.values())
_OPENAPI_REF = "#/components/schemas/{name}"


@lru_cache(maxsize=1)
def openapi_document() -> dict[str, Any]:
    """The whole description, OpenAPI 3.1."""
    import yaml

    described: dict[str, Any] = yaml.safe_load(OPENAPI_FILE.read_text("utf-8"))
    _, models = msgspec.json.schema_components(OPENAPI_MODELS, ref_template=_OPENAPI_REF)
    described["components"]["schemas"] |= models
    for verb, body in VERB_BODIES.items():
        described["paths"][f"/clusters/{{ref}}/{verb}"] = _verb_path(body)
    return described


def _verb_path(body: type[Model]) -> dict[str, Any]:
    """Describe the route of a verb of a run, which takes this body."""

    def ref(where: str) -> dict[str, str]:
        return {"$ref": f"#/components/{where}"}

    content = {"application/json": {"schema": ref(f"schemas/{body.__name__}")}}
    return {
        "parameters": [ref("parameters/ref")],
        "post": {
            "summary": (body.__doc__ or "").rstrip("."),
            "parameters": [ref("parameters/uid")],
            "requestBody": {"content": content},
            "responses": {"200": ref("responses/Run"), "default": ref("responses/Problem")},
        },
    }


class OpenAPIHandler(TFClusterHandler):
    """`/openapi.json`."""

    @guarded
    async def get(self) -> None:
        """The description of all routes."""
        self.reply(await self.call(openapi_document))


OPENAPI_ROUTES = [(r"openapi\.json", OpenAPIHandler)]


# The texts of our settings in JupyterLab's language. Its server translates a settings schema with
# the catalogs of installed language packs, and with no others: so it is given a bundle of ours. A
# JupyterLab that keeps its bundles elsewhere shows these texts in English, and nothing worse.

SETTINGS_DOMAIN = "tfcluster"
"""That of the page's texts, too: locale/<language>/LC_MESSAGES/tfcluster.mo."""


def translate_settings() -> bool:
    """Have our schema translated with our catalog; says whether this JupyterLab can."""
    try:
        from jupyterlab_server.translation_utils import TranslationBundle, translator

        class Bundle(TranslationBundle):
            """Our catalog, wherever the language packs are."""

            def update_locale(self, locale_: str) -> None:
                """Speak this language from now on; English when there is no catalog."""
                self._locale = locale_
                self._translator = gettext.translation(
                    SETTINGS_DOMAIN, localedir=LOCALE_DIR, languages=[locale_], fallback=True
                )

        translator._TRANSLATORS[SETTINGS_DOMAIN] = Bundle(SETTINGS_DOMAIN, translator._LOCALE)
    except (ImportError, AttributeError, TypeError):
        return False
    return True


API = "tfcluster/api"
# The first that fits answers.
ROUTES: tuple[tuple[Any, ...], ...] = (
    *launch.ROUTES,
    *tensorboard_routes.ROUTES,
    *runs.ROUTES,
    *OPENAPI_ROUTES,
)


class TFClusterApp(ExtensionApp):
    """TFCluster in Jupyter Server; `c.ClusterManager` says where clusters are."""

    name = "tfcluster"
    load_other_extensions = True

    clusters_are_activity = Bool(
        False,
        help="Whether a server with running clusters counts as active, so that an idle culler "
        "leaves it. Between-graph runs do not need it: they outlive the server.",
    ).tag(config=True)

    def initialize_settings(self) -> None:
        """Make what the routes share."""
        self.settings["tfcluster"] = Service(self.serverapp, self.clusters_are_activity)
        translate_settings()

    def initialize_handlers(self) -> None:
        """Routes, below the server's base_url."""
        self.handlers.extend((url_path_join("/", API, path), *rest) for path, *rest in ROUTES)
        self.handlers.extend(
            (url_path_join("/", path), page) for path, page in tensorboard_routes.PAGES
        )

    async def _start_jupyter_server_extension(self, _serverapp: Any) -> None:
        """Begin to watch, now that the loop runs."""
        self.settings["tfcluster"].start()

    async def stop_extension(self) -> None:
        """Give back what this server holds."""
        await self.settings["tfcluster"].stop()
