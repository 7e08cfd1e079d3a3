"""A client of the admin console's API, and the options and tables that all `admin` verbs share.

The token is never printed, and it is sent only to the hub that the user named: redirects are
refused. Without a token, the error says how to make one. Requests to the hub of this machine do not
go through a proxy. The token of that hub is sent only if the kernel reports that a program of this
account or of root listens at the hub's address.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode, urlsplit

import click
from click.shell_completion import CompletionItem

from ... import paths, state_files
from ...errors import (
    BackendUnavailable,
    Conflict,
    NotAllowed,
    NotFound,
    TFClusterError,
    TooLarge,
    UsageError,
)
from ...i18n import _
from ...output.documents import to_yaml
from ...output.text import one_line, table
from .. import grammar
from ..group import VerbGroup, paragraphs
from ..terminal import Terminal

if TYPE_CHECKING:
    import sockets  # the name by which type checkers know runtime/sockets.py
else:  # runtime/ is a folder of scripts, not a package
    sockets = import_module("tfcluster_magic.runtime.sockets")

HUB_VARIABLE, TOKEN_VARIABLE = "TFCLUSTER_HUB_URL", "TFCLUSTER_HUB_TOKEN"
SCOPE = "access:services!service=admin"
WITHIN = 60.0
_BLOCK = 1024 * 1024
_BY_STATUS: dict[int, type[TFClusterError]] = {
    400: UsageError,
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: UsageError,
    503: BackendUnavailable,
}


class _RefuseRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_words: Any) -> None:
        return None


class _OwnConnection(http.client.HTTPConnection):
    """A connection to a program of this account or of root; nothing is sent to other programs."""

    def connect(self) -> None:
        """Connect. Raise NotAllowed unless the program at the address surely belongs to this
        account or to root.
        """
        super().connect()
        assert isinstance(self.sock, socket.socket)
        found, where = sockets.owners(self.sock), f"{self.host}:{self.port}"
        if strangers := found - {0, os.geteuid()}:
            text = _(
                "{address} belongs to another account of this machine now (uid {uid}): no token "
                "was sent there. Start your hub with `make run`"
            )
            raise NotAllowed(text.format(address=where, uid=min(strangers)))
        if not found:
            text = _(
                "this system does not say whose program listens at {address}, so no "
                "token was sent. Name the hub and your token: `--hub URL "
                "--token-file FILE`"
            )
            raise NotAllowed(text.format(address=where))


class _OwnHubHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_OwnConnection, req)


def _opener(*, own: bool) -> urllib.request.OpenerDirector:
    if own:
        no_proxy = urllib.request.ProxyHandler({})
        return urllib.request.build_opener(no_proxy, _RefuseRedirects, _OwnHubHandler)
    return urllib.request.build_opener(_RefuseRedirects)


@dataclass(frozen=True)
class HubAPI:
    """The admin console of one hub.

    Args:
        url: the hub's address, without a slash at the end.
        token: an API token of the hub.
        own: whether this is the hub of this machine, whose address is in the hub's state folder.
    """

    url: str
    token: str
    own: bool = False

    @classmethod
    def of(
        cls, url: str | None, token_file: str | None, environ: Mapping[str, str] | None = None
    ) -> HubAPI:
        """Find hub and token in the arguments, else in the environment, else in the state folder of
        this machine's hub. That folder has a token for the account that runs the hub.

        Raises:
            UsageError: no hub address or no token was found.
        """
        env = os.environ if environ is None else environ
        local = _local_hub_url()
        where = (url or env.get(HUB_VARIABLE) or local).rstrip("/").removesuffix("/hub")
        if urlsplit(where).scheme not in ("http", "https"):
            text = _("no hub runs on this machine: name one with `--hub https://…` or {variable}")
            raise UsageError(text.format(variable=HUB_VARIABLE))
        token = env.get(TOKEN_VARIABLE, "")
        if token_file:
            try:
                token = Path(token_file).read_text(encoding="utf-8")
            except OSError as error:
                text = _("the token cannot be read from {file}: {why}")
                raise UsageError(text.format(file=token_file, why=error.strerror)) from None
        own = where == local and _is_loopback(local)
        if not token.strip() and own:
            token = _state_file("shell_token")
        if not token.strip():
            raise UsageError(token_help(where))
        return cls(where, token.strip(), own)

    def ask(
        self, method: str, path: str, words: Any = (), body: dict[str, Any] | None = None
    ) -> Any:
        """Send a request as `blocks` does, and return the decoded JSON. Raises the same errors as
        `blocks`.
        """
        return json.loads(self.raw(method, path, words, body))

    def raw(
        self, method: str, path: str, words: Any = (), body: dict[str, Any] | None = None
    ) -> bytes:
        """Send a request as `blocks` does, and return the whole body. Raises the same errors as
        `blocks`.
        """
        return b"".join(self.blocks(method, path, words, body))

    def blocks(
        self, method: str, path: str, words: Any = (), body: dict[str, Any] | None = None
    ) -> Iterator[bytes]:
        """Send a request with the query parameters `words`, and yield the body of the answer in
        pieces as they arrive.

        Raises:
            BackendUnavailable: the hub or its console does not answer.
            TFClusterError: the console refused the request; the HTTP status decides which subclass
                is raised.
        """
        query = "?" + urlencode(words, doseq=True) if words else ""
        base, host = _connect_address(self.url)
        request = urllib.request.Request(  # noqa: S310 - `HubAPI.of` allows only http and https
            f"{base}/services/admin/api/{path}{query}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Authorization": f"Bearer {self.token}",
                "Accept": "application/json",
                "Host": host,
            },
        )
        try:
            with _opener(own=self.own).open(request, timeout=WITHIN) as answer:
                while block := answer.read(_BLOCK):
                    yield block
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", error)
            text = _("the hub at {url} does not answer: {why}")
            raise BackendUnavailable(text.format(url=self.url, why=why)) from None

    def _refused(self, error: urllib.error.HTTPError) -> TFClusterError:
        try:
            detail = str(json.loads(error.read())["detail"])
        except (OSError, ValueError, KeyError, TypeError):
            text = _("there is no admin console at {url} ({status} {reason})")
            status = {"status": error.code, "reason": error.reason}
            return BackendUnavailable(text.format(url=self.url, **status))
        if error.code == 401:
            text = _("the hub does not know this token, or it has expired. {how}")
            return NotAllowed(text.format(how=token_help(self.url)))
        return _BY_STATUS.get(error.code, TFClusterError)(detail)


def token_help(url: str) -> str:
    """Return a sentence that says how an administrator gets a token."""
    return _(
        "You need a token: make one at {page} with the scope {scope}, and set "
        "{variable} or `--token-file`"
    ).format(page=f"{url}/hub/token", scope=SCOPE, variable=TOKEN_VARIABLE)


def _connect_address(url: str) -> tuple[str, str]:
    """Return the address to connect to, and the Host header. Names that end in `.localhost` mean
    this machine, as in browsers, although not every resolver knows such names.
    """
    parts = urlsplit(url)
    if not (parts.hostname or "").endswith(".localhost"):
        return url, parts.netloc
    port = "" if parts.port is None else f":{parts.port}"
    return parts._replace(netloc=f"127.0.0.1{port}").geturl(), parts.netloc


def _is_loopback(url: str) -> bool:
    """Return whether a plain HTTP request to this address would stay on this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        return parts.scheme == "http" and ipaddress.ip_address(host).is_loopback
    except ValueError:
        return parts.scheme == "http" and f".{host}".endswith(".localhost")


def _local_hub_url() -> str:
    """Return the address of this machine's hub from its state folder; "" if the hub is not
    running.
    """
    return _state_file("url").rstrip("/")


def _state_file(name: str) -> str:
    """Return the text of a file in the state folder of this machine's hub; "" if it is
    unreadable.
    """
    try:
        return state_files.read_bytes(paths.state_dir() / "hub" / name, most=4096).decode().strip()
    except (FileNotFoundError, state_files.Unreadable, UnicodeDecodeError):
        return ""


# Shared by the verbs of `admin`: groups, options and tables

F = TypeVar("F", bound=Callable[..., Any])
FORMS = ("table", "json", "yaml")


class AdminGroup(VerbGroup):
    """A group of `admin` verbs."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write each verb with the first paragraph of its help."""
        helps = ((name, next(paragraphs(one.help or ""))[0]) for name, one in self.commands.items())
        with formatter.section("Verbs"):
            formatter.write_dl(list(helps))

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the verbs in the order in which they were added."""
        return list(self.commands)


def hub_options(command: F) -> F:
    """Add `--hub` and `--token-file`."""
    options = (
        click.option(
            "--hub",
            metavar="URL",
            help="address of the hub [TFCLUSTER_HUB_URL, else this machine's]",
        ),
        click.option(
            "--token-file",
            type=click.Path(),
            help="file with a token of the hub [the variable TFCLUSTER_HUB_TOKEN]",
        ),
    )
    for option in options:
        command = option(command)
    return command


def page_options(first: str) -> Callable[[F], F]:
    """Add `--sort`, `--limit` and `--offset` for a table; `first` is the default column of
    `--sort`.
    """

    def add(command: F) -> F:
        for option in (
            click.option("--offset", type=grammar.Whole(0), default=0, help=_OFFSET),
            click.option("--limit", type=grammar.Whole(1, 1000), default=100, help=_LIMIT),
            click.option("--sort", help=f"{_SORT} [{first}]"),
        ):
            command = option(command)
        return command

    return add


_SORT = "sort by this column; -COLUMN reverses the order"
_LIMIT = "maximum number of rows [100]"
_OFFSET = "number of rows to skip"


def show_page(
    terminal: Terminal,
    told: dict[str, Any],
    form: str,
    head: Sequence[str],
    row: Callable[[dict[str, Any]], Sequence[str]],
    none: str,
) -> None:
    """Print one page of a table of the console, and the number of rows that are on other pages;
    print the text `none` if the page has no rows.
    """
    if form != "table":
        terminal.emit(document(told, form))
    elif told["items"]:
        rows = [tuple(row(each)) for each in told["items"]]
        terminal.emit(table(tuple(head), rows, terminal.paint, terminal.columns))
    else:
        terminal.say(none)
    if (more := told["total"] - len(told["items"])) and form == "table":
        terminal.note(_("{count} more; see --limit and --offset").format(count=more))
    note_unreadable(terminal, told)


def complete_names(
    ctx: click.Context, incomplete: str, path: str, state: str, *, active: bool = False
) -> list[CompletionItem]:
    """Return completions OWNER/NAME for the rows that the API returns at `path` (with `active`, for
    the active rows). The help text of each completion is the value of the row's field whose name is
    `state`. If the hub does not answer, there are no completions.
    """
    try:
        hub = HubAPI.of(ctx.params.get("hub"), ctx.params.get("token_file"))
        rows = hub.ask("GET", path, {"limit": 1000})["items"]
    except TFClusterError:
        return []
    names = {f"{r['owner']}/{r['name']}": r[state] for r in rows if not active or r["active"]}
    return [CompletionItem(n, help=h) for n, h in names.items() if n.startswith(incomplete)]


def owner_and_run(run: str) -> tuple[str, str]:
    """Split OWNER/RUN into its two parts. Raises UsageError."""
    return _owner_and_name(run, _("{name} has no owner: write OWNER/RUN, such as ada/digits-2"))


def owner_and_schedule(schedule: str) -> tuple[str, str]:
    """Split OWNER/SCHEDULE into its two parts. Raises UsageError."""
    text = _("{name} has no owner: write OWNER/SCHEDULE, such as ada/nightly")
    return _owner_and_name(schedule, text)


def _owner_and_name(reference: str, otherwise: str) -> tuple[str, str]:
    owner, _slash, name = reference.partition("/")
    if not (owner and name):
        raise UsageError(otherwise.format(name=reference))
    return owner, name


def tell_results(terminal: Terminal, told: dict[str, Any], form: str, done: str) -> None:
    """Print the result of a change for each object. `done` is the sentence to print for an object
    that was changed; `{name}` in this sentence is replaced by the object's name.
    """
    if form != "table":
        terminal.emit(document(told, form))
    for one in told["results"]:
        name = f"{one['owner']}/{one['name']}"
        if not one["ok"]:
            terminal.exit_code = 1
            terminal.note(_("{label}: {value}").format(label=name, value=one_line(one["detail"])))
        elif form == "table":
            terminal.say(done.format(name=name))


def document(told: Any, form: str) -> str:
    """Return a console response as JSON or YAML."""
    return json.dumps(told, indent=2, ensure_ascii=False) if form == "json" else to_yaml(told)


def note_unreadable(terminal: Terminal, told: dict[str, Any]) -> None:
    """Print a note for each owner whose data could not be read."""
    for one in told.get("missed", ()):
        words = {"label": one["owner"], "value": one_line(one["detail"])}
        terminal.note(_("{label}: {value}").format(**words))
