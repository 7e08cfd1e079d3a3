"""Measures how long a TensorBoard takes to appear in a real JupyterLab with the extension, in
Chromium.
"""

from __future__ import annotations

import subprocess
import sys
import time

from .page import BUILT, _browser, _lab, _open
from .rows import Row, bounded

_FRAME = ".jp-MainAreaWidget:not(.lm-mod-hidden) > .tfc-Board iframe"
_ASK = """
async folder => {
    const began = Date.now();
    await window.jupyterapp.commands.execute('tfcluster:tensorboard', { folder });
    return began;
}
"""
_PAINTED = """
async () => {
    const paint = () => performance.getEntriesByName('first-contentful-paint')[0];
    while (!paint()) {
        await new Promise(resolve => setTimeout(resolve, 10));
    }
    return performance.timeOrigin + paint().startTime;
}
"""
_WRITE = """
import sys
from pathlib import Path
import event_writer as ev
events = [ev.event(step, {"loss": 1 / step}) for step in range(1, 1000)]
ev.event_file(Path(sys.argv[1])).write_bytes(ev.version() + b"".join(events))
"""


def tab(quick: bool) -> list[Row]:
    """Measure the time from the command to TensorBoard's first paint in the tab, each time with a
    new process.
    """
    painted, drawn = [], []
    with _browser() as browser, _lab(BUILT) as server:
        page = browser.new_page()
        _open(page, server)
        for number in range(1 if quick else 5):
            name = f"run-{number}"
            subprocess.run([sys.executable, "-c", _WRITE, name], cwd=server.root, check=True)
            began = page.evaluate(_ASK, name)
            frame = page.frame_locator(_FRAME)
            frame.locator("tb-webapp").wait_for(state="attached", timeout=60_000)
            painted.append((frame.locator("body").evaluate(_PAINTED) - began) / 1000)
            frame.locator("scalar-card line-chart").first.wait_for(timeout=60_000)
            drawn.append(time.time() - began / 1000)
    note = "each time a new TensorBoard; beside it, until its first curve is drawn"
    return [bounded("tensorboard_tab", "s", painted, at_most=2.0, baseline=drawn, note=note)]
