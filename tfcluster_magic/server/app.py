"""The extension of Jupyter Server: routes, their OpenAPI document, settings, and the shell of
terminals.
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
from ..usage.graphs import RunGraphs
from ..usage.summary import RunUsage, Series
from . import launch, logs, notifications, runs, schedules, tensorboard_routes
from .base import TFClusterHandler, guarded
from .launch import Kernel, LaunchBody, RerunBody
from .notifications import NOTIFICATION_MODELS
from .runs import VERB_BODIES
from .schedules import SCHEDULE_MODELS, SCHEDULE_VERBS
from .service import Service
from .tensorboard_routes import BoardBody

OPENAPI_FILE = Path(__file__).with_name("openapi.yaml")
_OTHER_MODELS = (
    TFCluster,
    Options,
    Comparison,
    RunUsage,
    RunGraphs,
    Series,
    LaunchBody,
    RerunBody,
    BoardBody,
    Kernel,
)
OPENAPI_MODELS = (*_OTHER_MODELS, *VERB_BODIES.values(), *SCHEDULE_MODELS, *NOTIFICATION_MODELS)
_OPENAPI_REF = "#/components/schemas/{name}"


@lru_cache(maxsize=1)
def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document that describes all routes."""
    import yaml

    described: dict[str, Any] = yaml.safe_load(OPENAPI_FILE.read_text("utf-8"))
    _, models = msgspec.json.schema_components(OPENAPI_MODELS, ref_template=_OPENAPI_REF)
    described["components"]["schemas"] |= models
    for verb, body in VERB_BODIES.items():
        described["paths"][f"/clusters/{{ref}}/{verb}"] = _verb_path(body)
    for verb, body in SCHEDULE_VERBS.items():
        described["paths"][f"/schedules/{{name}}/{verb}"] = _schedule_verb_path(verb, body)
    return described


def _verb_path(body: type[Model]) -> dict[str, Any]:
    """Return the OpenAPI description of the route for a verb whose request body has the type
    `body`.
    """

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


def _schedule_verb_path(verb: str, body: type[Model]) -> dict[str, Any]:
    """Return the OpenAPI description of the route for a verb on schedules whose request body has
    the type `body`.
    """
    summaries = {"resume": "Resume a paused schedule", "run-now": "Make a schedule due now"}
    ref = {"$ref": f"#/components/schemas/{body.__name__}"}
    return {
        "parameters": [{"$ref": "#/components/parameters/name"}],
        "post": {
            "summary": summaries.get(verb) or (body.__doc__ or "").rstrip("."),
            "requestBody": {"content": {"application/json": {"schema": ref}}},
            "responses": {
                "200": {"$ref": "#/components/responses/Schedule"},
                "default": {"$ref": "#/components/responses/Problem"},
            },
        },
    }


class OpenAPIHandler(TFClusterHandler):
    """`/openapi.json`."""

    @guarded
    async def get(self) -> None:
        """Answer with the description of all routes."""
        self.reply(await self.call(openapi_document))


OPENAPI_ROUTES = [(r"openapi\.json", OpenAPIHandler)]


# Translations of our settings in JupyterLab. JupyterLab's server translates settings schemas only
# with the catalogs of installed language packs, so we register a bundle of our own. If a JupyterLab
# keeps its bundles elsewhere, these texts stay English.

SETTINGS_DOMAIN = "tfcluster"
"""Gettext domain of the JupyterLab extension's catalog: locale/<language>/LC_MESSAGES/tfcluster.mo.
"""


def translate_settings() -> bool:
    """Make JupyterLab translate our settings with our catalog; return False if it cannot."""
    try:
        from jupyterlab_server.translation_utils import TranslationBundle, translator

        class Bundle(TranslationBundle):
            """A bundle of translations that reads our catalog; JupyterLab's own bundles read
            language packs.
            """

            def update_locale(self, locale_: str) -> None:
                """Switch to this language, or to English if it has no catalog."""
                self._locale = locale_
                self._translator = gettext.translation(
                    SETTINGS_DOMAIN, localedir=LOCALE_DIR, languages=[locale_], fallback=True
                )

        translator._TRANSLATORS[SETTINGS_DOMAIN] = Bundle(SETTINGS_DOMAIN, translator._LOCALE)
    except (ImportError, AttributeError, TypeError):
        return False
    return True


# The shell that terminals in JupyterLab start. A Jupyter Server that was not itself started from a
# terminal, such as a notebook server of a hub, starts login shells. In such a shell, the
# /etc/profile of Debian and others resets PATH, so that `tfcluster` and this server's `python` are
# not found.

SHELLS = ("bash", "zsh", "fish", "ksh", "dash", "ash", "sh")
"""Shells with which `login_shell` works: `-l -c` makes them read the profile, and their "$PATH" is
separated by colons.
"""

BASH_LOGIN_FILE = Path(__file__).with_name("terminal_login.bash")
"""Commands that read a login shell's files, then put TFCLUSTER_TERMINAL_PATH in front of PATH."""


def login_shell(environ: Mapping[str, str], programs: Path) -> list[str] | None:
    """Return the command of a login shell that still finds this server's programs.

    The server's PATH up to and including `programs` is put in front of the profile's PATH. Bash
    keeps everything from the profile: variables, aliases, functions and prompt. Other shells read
    the profile as a login shell and then become an interactive shell, which keeps only the
    variables.

    Args:
        environ: the server's environment; SHELL takes precedence over the account's shell.
        programs: the folder of the server's Python, which also has `tfcluster`.

    Returns:
        The command; None if SHELL is not one of `SHELLS`.
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
        if "ENV" in environ:
            # The user has set ENV for other shells, and here it is replaced; BASH_LOGIN_FILE
            # restores it.
            variables.append(f"TFCLUSTER_TERMINAL_ENV={environ['ENV']}")
        return ["env", *variables, shell, "--posix", "-l"]
    becomes = f'exec env PATH={shlex.quote(found)}:"$PATH" {shlex.quote(shell)}'
    return [shell, "-l", "-c", becomes]


def _account_shell() -> str:
    """Return this account's shell if it is in `SHELLS`, else another shell of the machine."""
    try:
        shell = pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:  # in a container, the uid may have no name
        shell = ""
    return shell if Path(shell).name in SHELLS else shutil.which("bash") or "/bin/sh"


API = "tfcluster/api"
# The first matching route answers a request.
ROUTES: tuple[tuple[Any, ...], ...] = (
    *launch.ROUTES,
    *tensorboard_routes.ROUTES,
    *logs.ROUTES,
    *runs.ROUTES,
    *schedules.ROUTES,
    *notifications.ROUTES,
    *OPENAPI_ROUTES,
)


class TFClusterApp(ExtensionApp):
    """The extension app; `c.ClusterManager` configures where clusters run."""

    name = "tfcluster"
    load_other_extensions = True

    clusters_are_activity = Bool(
        False,
        help="Whether running clusters count as activity, so that an idle culler does not stop the "
        "server. Between-graph runs do not need it: they outlive the server.",
    ).tag(config=True)

    def _link_jupyter_server_extension(self, serverapp: Any) -> None:
        """Set the shell of terminals, unless it is configured. This must be done before the
        terminals' extension is loaded; Jupyter Server links all extensions before it loads any of
        them.
        """
        super()._link_jupyter_server_extension(serverapp)
        settings = serverapp.terminado_settings
        if "shell_command" in settings or sys.stdout.isatty():
            return  # a Jupyter Server started from a terminal starts shells that read no profile
        if command := login_shell(os.environ, Path(sys.executable).parent):
            serverapp.terminado_settings = {**settings, "shell_command": command}

    def initialize_settings(self) -> None:
        """Create the service that the routes share."""
        self.settings["tfcluster"] = Service(self.serverapp, self.clusters_are_activity)
        translate_settings()

    def initialize_handlers(self) -> None:
        """Add the routes below the server's base_url."""
        self.handlers.extend((url_path_join("/", API, path), *rest) for path, *rest in ROUTES)
        self.handlers.extend(
            (url_path_join("/", path), page) for path, page in tensorboard_routes.PAGES
        )

    async def _start_jupyter_server_extension(self, _serverapp: Any) -> None:
        """Start to watch runs. Jupyter Server calls this when its event loop runs."""
        self.settings["tfcluster"].start()

    async def stop_extension(self) -> None:
        """Stop events, log streams and TensorBoards of this server; clusters keep running."""
        await self.settings["tfcluster"].stop()
