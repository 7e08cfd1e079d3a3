"""The console's view of this machine, with the test's own runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tfcluster_magic.hub.console.sites.local import LocalSite
from tfcluster_magic.runs.manager import ClusterManager

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(3600)\n"


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterManager:
    """Return a manager with this test's folders."""
    for name in ("STATE_DIR", "HOME"):
        monkeypatch.setenv(f"TFCLUSTER_{name}", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sleep.py").write_text(SLEEP)
    return ClusterManager()


def within(do: Callable[[LocalSite], Awaitable[None]]) -> None:
    """Call a function with the console's view of this machine, on which ada runs the hub."""

    async def users() -> list[str]:
        return ["ada", "slow"]

    async def whole() -> None:
        here = LocalSite("ada", users)
        try:
            await do(here)
        finally:
            await here.close()

    asyncio.run(whole())
