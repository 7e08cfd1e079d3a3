"""People who may sign in at the provider beside members of groups: those whom somebody imported.

Promises that the file is the hub's own and always whole, and that who is deleted in the hub is out
of it. The provider still says who somebody is, and which groups they are in.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from tornado import web

from ... import state_files
from ...errors import InvalidRequest, TFClusterError
from ...i18n import _
from .store import allowed_name

FILE = "allowed.json"


class AllowList:
    """Names, in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> set[str]:
        """All of them. Raises TFClusterError."""
        try:
            return state_files.load(self.path, set[str], exact=True)
        except FileNotFoundError:
            return set()
        except state_files.Unreadable as error:
            text = _("who may sign in cannot be read from {file}: {why}")
            raise TFClusterError(text.format(file=self.path, why=error)) from None

    def add(self, *names: str) -> None:
        """So many more. Raises TFClusterError; OSError."""
        with self._change() as found:
            found.update(names)

    def remove(self, name: str) -> None:
        """One less. Raises as `add`."""
        if name in self.names():
            with self._change() as found:
                found.discard(name)

    @contextmanager
    def _change(self) -> Iterator[set[str]]:
        lock = state_files.lock_file(self.path.with_suffix(".lock"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = self.names()
            yield found
            state_files.write(self.path, msgspec.json.encode(sorted(found)), durable=True)
        finally:
            os.close(lock)


class AllowedAPI(APIHandler):
    """The list, for programs that may create users."""

    @needs_scope("admin:users")
    def get(self) -> None:
        """Answer with {"allowed": [NAME]}."""
        self.write({"allowed": sorted(self._list.names())})

    @needs_scope("admin:users")
    def post(self) -> None:
        """Let several sign in: {"names": [NAME]}; all of them or none."""
        said = self.get_json_body() or {}
        names = said.get("names") if isinstance(said, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise web.HTTPError(400, "names is a list of names")
        self._add(*names)

    def _add(self, *names: str) -> None:
        normal = self.authenticator.normalize_username
        try:
            self._list.add(*(normal(allowed_name(name)) for name in names))
        except InvalidRequest as problem:
            raise web.HTTPError(400, "%s", problem) from None
        self.set_status(204)

    @property
    def _list(self) -> AllowList:
        found: AllowList = self.authenticator.imported
        return found


class OneAllowedAPI(AllowedAPI):
    """One name."""

    @needs_scope("admin:users")
    def put(self, name: str) -> None:
        """Let them sign in."""
        self._add(name)


HANDLERS = [(r"/api/allowed", AllowedAPI), (r"/api/allowed/([^/]+)", OneAllowedAPI)]
