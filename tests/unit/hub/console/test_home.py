"""The list of a user's clusters for the hub's home page, and who may request this list."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from support.console_rows import row
from support.kube_server import KubeServer
from support.kubernetes_console import ADA, BOB, launched, server, within
from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer

from tfcluster_magic.hub.audit import AuditLog
from tfcluster_magic.hub.console import service
from tfcluster_magic.hub.console.routes import application
from tfcluster_magic.hub.console.routes.base import Console
from tfcluster_magic.hub.console.sites.base import (
    MOST_ENDED,
    Missed,
    SiteRuns,
    UserRuns,
    runs_for_home,
)
from tfcluster_magic.hub.console.sites.kubernetes import KubernetesSite

__all__ = ["server"]  # a fixture used by the test below

TOKEN = "a token of the console"


def test_the_page_has_all_active_runs_and_the_last_that_ended() -> None:
    """Runs are sorted by their start, newest first; of the ended runs, only the last are
    included.
    """
    active = [row("ada", number) for number in (1, 7, 90)]
    ended = [row("ada", 100 + number, active=False) for number in range(60)]
    missed = (Missed(owner="ada", detail="a disk hangs"),)

    told = runs_for_home(SiteRuns(rows=(*ended, *active), missed=missed))

    assert [one.run for one in told.active] == [90, 7, 1]
    assert [one.run for one in told.ended] == list(range(159, 159 - MOST_ENDED, -1))
    assert told.ended_count == 60 and told.missed == ("a disk hangs",)


def test_only_the_hub_asks_for_a_users_runs(
    server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the hub's key gives access; a request without a key, or with the console's own token, is
    refused.
    """
    for name, text in (
        ("JUPYTERHUB_API_TOKEN", TOKEN),
        ("JUPYTERHUB_SERVICE_PREFIX", "/services/admin/"),
        ("JUPYTERHUB_BASE_URL", "/"),
    ):
        monkeypatch.setenv(name, text)
    launched(server, ADA, "digits-1", phase="Running", reason="Running")
    launched(server, BOB, "exam-1", phase="Running", reason="Running")
    prefix = service.service_prefix("/")
    wrong = [{}, {service.KEY: TOKEN}, {service.KEY: "é"}, {"Authorization": f"token {TOKEN}"}]

    async def ask(site: KubernetesSite) -> None:
        audit = AuditLog(tmp_path / "audit")
        answers = HTTPServer(application(Console(site=site, audit=audit, prefix=prefix, hub="/")))
        answers.listen(0, "127.0.0.1")
        port = next(iter(answers._sockets.values())).getsockname()[1]
        url = f"http://127.0.0.1:{port}{prefix}api/home/"
        for headers in wrong:
            refused = await AsyncHTTPClient().fetch(url + "ada", headers=headers, raise_error=False)
            assert refused.code == 403 and b"digits" not in refused.body
        key = {service.KEY: service.home_key(TOKEN)}
        told = json.loads((await AsyncHTTPClient().fetch(url + "ada", headers=key)).body)
        assert [one["name"] for one in told["active"]] == ["digits-1"]
        assert msgspec.convert(told, UserRuns).active[0].tasks == {"worker": 2}
        nobody = await AsyncHTTPClient().fetch(url + "a%2Fb", headers=key)
        assert msgspec.json.decode(nobody.body, type=UserRuns) == UserRuns()
        answers.stop()

    within(server, ask)
