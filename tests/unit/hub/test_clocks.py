"""The service that keeps the clocks of schedules running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tfcluster_magic.hub import clocks


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_by_the_signals_of_the_hub(tmp_path: Path, number: signal.Signals) -> None:
    """The service ends at SIGINT, which JupyterHub sends first, and at SIGTERM, so a hub that is
    stopped does not wait for the service.
    """
    variables = {
        clocks.STATE: str(tmp_path),
        clocks.EVERY: "30",
        clocks.OWNER: "ada",
        "JUPYTERHUB_API_URL": "http://127.0.0.1:1/hub/api",
        "JUPYTERHUB_API_TOKEN": "none",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "tfcluster_magic.hub.clocks"],
        env={**os.environ, **variables},
        stderr=subprocess.PIPE,
        text=True,
    ) as service:
        assert service.stderr and "cannot be read" in service.stderr.readline()
        service.send_signal(number)
        assert service.wait(60) == 0
