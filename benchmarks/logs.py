"""The smoothness of the log view, with real lines of real tasks in Chromium. Times are CPU times of
the page's main thread, on which other load has little effect.
"""

from __future__ import annotations

from typing import Any

from .page import BUILT, _browser, _lab, _open, _work
from .rows import Row, bounded

LINES = 50_000
"""Number of lines that each of the two workers prints."""
FRAMES = 200
SCROLL = """async frames => {
  const log = document.querySelector('.tfc-Log-lines');
  const end = log.scrollHeight;
  for (let frame = 0; frame < frames; frame++) {
    log.scrollTop = (end * frame) / frames;
    await new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)));
  }
}"""
SEARCH = """async text => {
  const input = document.querySelector('.tfc-Log-input');
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
  set.call(input, text);
  input.dispatchEvent(new Event('input', { bubbles: true }));
  const count = document.querySelector('.tfc-Log-count');
  while (!/ of 2$/.test(count.textContent)) {
    await new Promise(resolve => setTimeout(resolve, 5));
  }
}"""


def scroll(quick: bool) -> list[Row]:
    """Measure the time of a frame while scrolling through 100 000 lines, and of a search through
    all of them.
    """
    frames = FRAMES // 4 if quick else FRAMES
    with _browser() as browser, _lab(BUILT) as server:
        server.launch("talk.py", str(LINES), workers=2, name="talk")
        server.manager.wait("talk-1", 120)
        page = browser.new_page()
        _open(page, server)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        open_it = "() => window.jupyterapp.commands.execute('tfcluster:logs', {name: 'talk-1'})"

        def spent(script: str, argument: Any = None) -> float:
            before = _work(session)
            page.evaluate(script, argument)
            return (_work(session) - before) * 1000

        before = _work(session)
        page.evaluate(open_it)
        last = f"worker-1 | line {LINES - 1} of {LINES}"
        page.get_by_role("log").get_by_text(last).wait_for(timeout=120_000)
        loaded = (_work(session) - before) * 1000
        scrolled = spent(SCROLL, frames) / frames
        found = spent(SEARCH, "line 31416 of")
    note = f"{2 * LINES} lines; work of the page's main thread"
    return [
        bounded("logs_load", "ms", [loaded], at_most=3000.0, note=note),
        bounded("logs_scroll", "ms a frame", [scrolled], at_most=16.0, note=note),
        bounded("logs_search", "ms", [found], at_most=500.0, note=note),
    ]
