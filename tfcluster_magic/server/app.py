"""The extension as Jupyter Server loads it: its routes, their OpenAPI document, its settings, and
the shell of its terminals.
"""

from __future__ import annotations

import gettext
import os
import pwd
import shlex
import shutil
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from jupyter_server.extension.application import ExtensionApp
from jupyter_server.utils import url_path_join
from traitlets import Bool

from ..backends.base import Options
from ..i18n import LOCALE_DIR
from ..output.comparison import Comparison
from ..spec import Model, TFCluster
from . import launch, runs, tensorboard_routes
from .base import TFClusterHandler, guarded
from .launch import Kernel, LaunchBody, RerunBody
from .runs import VERB_BODIES
from .service import Service
from .tensorboard_routes import BoardBody

OPENAPI_FILE = Path(__file__).with_name("openapi.yaml")
_OTHER_MODELS = (TFCluster, Options, Comparison, LaunchBody, RerunBody, BoardBody, Kernel)
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


# The shell of terminals. A server without a terminal of its own, such as a hub's notebook, gives
# people a login shell, and /etc/profile of Debian and others sets PATH anew: without the folder
# that has `tfcluster` and this server's `python`.

SHELLS = ("bash", "zsh", "fish", "ksh", "dash", "ash", "sh")
"""Shells that read their profile with `-l -c`, and have "$PATH" in quotes with colons."""

BASH_LOGIN_FILE = Path(__file__).with_name("terminal_login.bash")
"""Reads a login shell's files and then puts TFCLUSTER_TERMINAL_PATH in front of PATH."""


def login_shell(environ: Mapping[str, str], programs: Path) -> list[str] | None:
    """Return the command of a login shell that still finds this server's programs.

    The beginning of the server's PATH, up to `programs`, comes in front of what the profile sets.
    Bash keeps all of the profile: variables, aliases, functions and prompt. Of another shell a
    login shell reads the profile and becomes an interactive shell, which keeps the variables.

    Args:
        environ: the server's environment; SHELL wins over the shell of the account.
        programs: the folder of the server's Python, which also has `tfcluster`.

    Returns:
        The command; None if SHELL is a shell that this does not fit.
    """
    shell = environ.get("SHELL") or _account_shell()
    name = Path(shell).name
    if name not in SHELLS:
        return None
    path = environ.get("PATH", "").split(os.pathsep)
    front = path[: path.index(str(programs)) + 1] if str(programs) in path else [str(programs)]
    found = os.pathsep.join(front)
    if name == "bash":
        variables = [f"ENV={BASH_LOGIN_FILE}", f"TFCLUSTER_TERMINAL_PATH={found}"]
        if "ENV" in environ:  # other shells read it; it is given back
            variables.append(f"TFCLUSTER_TERMINAL_ENV={environ['ENV']}")
        return ["env", *variables, shell, "--posix", "-l"]
    becomes = f'exec env PATH={shlex.quote(found)}:"$PATH" {shlex.quote(shell)}'
    return [shell, "-l", "-c", becomes]


def _account_shell() -> str:
    """The shell of this account; one that nobody can work in is replaced by one of the machine."""
    try:
        shell = pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:  # a container may run as a number that has no name
        shell = ""
    return shell if Path(shell).name in SHELLS else shutil.which("bash") or "/bin/sh"


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

    def _link_jupyter_server_extension(self, serverapp: Any) -> None:
        """Set the shell of terminals, unless somebody has; all are linked before one is loaded."""
        super()._link_jupyter_server_extension(serverapp)
        settings = serverapp.terminado_settings
        if "shell_command" in settings or sys.stdout.isatty():
            return  # from a terminal, Jupyter starts a shell that reads no profile
        if command := login_shell(os.environ, Path(sys.executable).parent):
            serverapp.terminado_settings = {**settings, "shell_command": command}

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
