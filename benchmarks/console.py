"""The admin console in Chromium, on a real hub with 500 users and 2000 clusters.

If root runs this benchmark, each user has a system account with their clusters; otherwise all
clusters belong to the account that runs the hub. One cluster in ten is running, and its record is
read on every refresh. Before a page is opened, the benchmark waits, so that the rows in the
console's cache are old. The row `console_cold` is measured after a longer pause, when no process
that reads users' folders is left. Its value is the time until the stored rows are visible; its note
has the time until fresh rows have replaced them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tfcluster_magic.hub.auth import FILE
from tfcluster_magic.hub.auth.accounts import AccountStore
from tfcluster_magic.hub.user_limits import Allowances
from tfcluster_magic.runs.manager import Until

from .page import _browser
from .processes import pss_mib
from .rows import Row, bounded

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

    from tests.support.hub.make_run import Hub

USERS, RUNS, RUNNING = 500, 2000, 10
"""Three numbers: the users, the clusters, and the share of clusters that run. One cluster of every
`RUNNING` clusters runs.
"""
FIRST, FILTER = 1000.0, 200.0
"""A pair of goals in milliseconds: the time until the first rows are visible, and the time from a
keystroke until the matching rows are visible.
"""
OLD, UNUSED = 4.0, 65.0
"""A pair of times in seconds without visitors. After `OLD`, the next visitor makes the console read
its stored rows again. After `UNUSED`, the console has ended all processes that read users' folders.
"""
LETTERS = "student12"
POLICY = "default: {quota: {cpu: 2}}\ngroups: {ml101: {quota: {cpu: 4}}}\n"
SLEEP = "import time\ntime.sleep(3600)\n"
WATCH = """
const frame = then => requestAnimationFrame(() => requestAnimationFrame(then));
const seen = then => frame(() => then(performance.now()));
let typed = 0;
window.__first = window.__filtered = null;
new MutationObserver(changes => {
  if (!changes.some(one => one.target.id === 'rows' && one.addedNodes.length)) {
    return;
  }
  if (window.__first === null) {
    seen(at => (window.__first ??= at));
  }
  if (typed) {
    const began = typed;
    typed = 0;
    seen(at => (window.__filtered = at - began));
  }
}).observe(document, { childList: true, subtree: true });
document.addEventListener(
  'input',
  () => {
    typed = performance.now();
    window.__filtered = null;
  },
  true
);
"""


def pages(quick: bool) -> list[Row]:
    """Measure both pages: the time to the first rows, the time from a keystroke to matching rows,
    and the number of requests.
    """
    users, runs, rounds = (20, 80, 2) if quick else (USERS, RUNS, 3)
    measured: list[Row] = []
    with _site(users, runs) as (hub, note), _browser() as browser:
        from tests.support.hub.console_clients import sign_in_to

        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        sign_in_to(page, hub, "users")
        page.locator("#rows tr").first.wait_for(timeout=300_000)
        page.get_by_role("link", name="Clusters").click()
        page.get_by_text(f"of {runs}").wait_for(timeout=300_000)
        page.close()
        for name, path in (("clusters", ""), ("users", "users")):
            at = f"{hub.url}/services/admin/{path}"
            first = [_first(context, at, OLD) for _ in range(rounds)]
            letters, requests = _typed(context, at, quick)
            words = f"{note}; slowest {max(first):.0f}"
            measured += [
                bounded(f"console_{name}", "ms", first, at_most=FIRST, note=words),
                bounded(
                    f"console_{name}_filter",
                    "ms",
                    letters,
                    at_most=FILTER,
                    note=f"each of {len(letters)} letters; slowest {max(letters):.0f}",
                ),
                bounded(f"console_{name}_asks", "a refresh", [requests], at_most=1.0),
            ]
        assert hub.process
        below = psutil.Process(hub.process.pid).children(recursive=True)
        memory = pss_mib([one.pid for one in below if "hub.console" in " ".join(one.cmdline())])
        at = f"{hub.url}/services/admin/"
        last, new = _cold(context, at, OLD if quick else UNUSED)
        words = f"those of now after {new:.0f}; before: {memory:.0f} MiB"
        measured.append(bounded("console_cold", "ms", [last], at_most=FIRST, note=words))
    return measured


def _first(context: BrowserContext, at: str, after: float) -> float:
    """Return the milliseconds from navigation until rows are visible."""
    time.sleep(after)  # the pause without visitors
    page = context.new_page()
    try:
        page.add_init_script(WATCH)
        page.goto(at, wait_until="commit")
        return _read(page, "__first")
    finally:
        page.close()


def _cold(context: BrowserContext, at: str, after: float) -> tuple[float, float]:
    """Return the milliseconds until rows are visible, and until they are fresh."""
    time.sleep(after)  # the pause without visitors
    page = context.new_page()
    try:
        page.add_init_script(WATCH)
        page.goto(at, wait_until="commit")
        first = _read(page, "__first")
        page.locator("#note").wait_for(state="hidden", timeout=300_000)
        return first, float(page.evaluate("() => performance.now()"))
    finally:
        page.close()


def _typed(context: BrowserContext, at: str, quick: bool) -> tuple[list[float], float]:
    """Return the milliseconds from each keystroke to matching rows, and the number of API requests
    for each refresh of the table.
    """
    page = context.new_page()
    try:
        page.add_init_script(WATCH)
        page.goto(at)
        _read(page, "__first")
        asked: list[str] = []
        page.on("request", lambda one: asked.append(one.url.partition("?")[0]))
        page.wait_for_timeout(3000 if quick else 10_000)
        api = [one for one in asked if "/services/admin/api/" in one]
        table = [one for one in api if one.endswith(("api/clusters", "api/users"))]
        ratio = len(api) / max(1, len(table))  # only requests made before the first letter is typed
        found = []
        page.locator("#filter").focus()
        for letter in LETTERS:
            page.keyboard.type(letter)
            found.append(_read(page, "__filtered"))
            # After this pause, the age of the console's cached rows differs from letter to letter.
            page.wait_for_timeout(700)
        return found, ratio
    finally:
        page.close()


def _read(page: Page, word: str) -> float:
    deadline = time.monotonic() + 300
    while (found := page.evaluate(f"() => window.{word}")) is None:
        assert time.monotonic() < deadline, page.locator("body").inner_text()
        page.wait_for_timeout(20)
    return float(found)


@contextmanager
def _site(users: int, runs: int) -> Iterator[tuple[Hub, str]]:
    """Yield a hub whose users have accounts and records of clusters."""
    from tests.support.hub.make_run import OWNER, Hub
    from tests.support.hub.system_accounts import entered, open_folder, students

    accounts = students(users, 61_000)
    with open_folder(accounts.values()) as machine, contextlib.ExitStack() as held:
        (folder := machine / "root").mkdir(mode=0o700)
        (around := machine / "around").mkdir()
        hub = Hub(folder)
        (hub.state / "hub").mkdir(parents=True, mode=0o700)
        (hub.state / "hub" / "policy.yaml").write_text(POLICY)
        store = AccountStore(hub.state / "hub" / FILE)
        for name in accounts:
            store.invite(name)
        done, running = _samples(hub)
        homes = {OWNER: hub.state / "runs"}
        if os.geteuid() == 0:
            hub.prefix = entered(around, [folder], accounts)
            state = ".local/state/tfcluster/runs"
            homes = {name: around / "homes" / name / state for name in accounts}
        active = _records(homes, runs, done, running)
        for name, uid in accounts.items() if os.geteuid() == 0 else ():
            _own(around / "homes" / name, uid)
        try:
            hub.start()
            assert hub.process
            root = f"/proc/{hub.process.pid}/root"
            for lock in active:
                seen = str(lock).replace(str(around / "homes"), f"{root}/home")
                fcntl.flock(held.enter_context(open(seen, "rb")), fcntl.LOCK_EX)
            admin = hub.owner_signs_in()
            for path, body in (
                ("users", {"usernames": [*accounts]}),
                ("groups/ml101", {}),
                ("groups/ml101/users", {"users": [*accounts]}),
            ):
                answer = admin.api("POST", path, body)
                assert answer.ok, answer.text
            text = f"{users} users; {runs} clusters of {len(homes)} people"
            yield hub, text
        finally:
            hub.close()
            shutil.rmtree(Allowances(hub.state / "hub").of_others, ignore_errors=True)


def _samples(hub: Hub) -> list[dict[str, Any]]:
    """Return the records of two real clusters, one ended and one running."""
    hub.launch("print('up')", "done", workers=2)
    hub.launch(SLEEP, "runs", workers=2)
    hub.manager.wait("done", 180)
    hub.manager.wait("runs", 180, until=Until.READY)
    found: list[dict[str, Any]] = []
    for name in ("done", "runs"):
        folder = hub.state / "runs" / name / "1"
        found.append(
            {f: json.loads((folder / f).read_text()) for f in ("record.json", "status.json")}
        )
    hub.manager.stop("runs")
    hub.manager.wait("runs", 180, until=Until.RELEASED)
    shutil.rmtree(hub.state / "runs")
    return found


def _records(
    homes: Mapping[str, Path], runs: int, done: dict[str, Any], running: dict[str, Any]
) -> list[Path]:
    """Write the records of `runs` clusters, spread evenly over the users; return the lock files of
    the running clusters.
    """
    locks, names = [], list(homes)
    for number in range(runs):
        sample = done if number % RUNNING else running
        owner = names[number % len(names)]
        folder = homes[owner] / f"mnist{number}" / "1"
        folder.mkdir(parents=True, mode=0o700)
        record = sample["record.json"]
        head = {**record["metadata"], "name": f"mnist{number}-1", "cluster": f"mnist{number}"}
        head |= {"uid": f"{number:032x}", "createdAt": time.time() - number}
        (folder / "record.json").write_text(json.dumps({**record, "metadata": head}))
        (folder / "status.json").write_text(json.dumps(sample["status.json"]))
        (folder / "lock").touch()
        if sample is running:
            locks.append(folder / "lock")
    return locks


def _own(home: Path, uid: int) -> None:
    for path in (home, *home.rglob("*")):
        os.chown(path, uid, uid)
