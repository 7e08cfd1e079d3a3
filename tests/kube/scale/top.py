"""`tfcluster top` of 600 tasks in a notebook's pod: the seconds until its first table, and the
requests that it makes to the API server while it runs.

The tasks are on fake nodes, so nothing measures their usage. The benchmark therefore writes samples
of usage and reports of steps to the volume that the notebook mounts. It takes the samples from a
recorded run, and writes as many for each task as a task keeps in a run of 600 tasks.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from statistics import median

from kubenode.cluster import Cluster
from kubenode.commands import say
from kubenode.paths import ROOT
from support.kube import cluster_description as clusters
from support.kube import tenants
from support.kube.kubectl import Kubectl, Object
from support.kube.operator import CLAIMS
from support.kube.workloads import claim

from benchmarks.rows import Row, bounded
from tfcluster_magic.kube.api.client import path

from .api_watch import phases
from .site import Site
from .variants import PS, RUN, TASKS, WORKERS, record

RECORDING = ROOT / "tests" / "data" / "advice" / "balanced-1.json"
SECONDS = 60
ASKED = ("tfclusters", "configmaps", "events", "pods")
"""The kinds whose requests are counted: those that `tfcluster top` may read. Requests for other
kinds come from the cluster's servers, which renew their watches at any time.
"""
FILL = """
import json, os, sys, time
sys.path.insert(0, f"{sys.argv[1]}/tfcluster_magic/runtime")
import usage
counts, texts = json.loads(sys.argv[3]), json.loads(sys.argv[4])
folder, reports = f"{sys.argv[2]}/.tfcluster-usage", f"{sys.argv[2]}/.tfcluster-progress"
os.makedirs(folder)
os.makedirs(reports)
most = usage.RUN_BYTES // sum(counts.values()) * 2 // 3
for kind, count in counts.items():
    content = usage.thinned(texts[kind].encode(), most)
    (head, rows), = usage._attempts(content)
    now = time.time() + 900  # so that the samples are not old when they are shown
    begun = {**json.loads(head), "at": round(now - sum(row[0] for row in rows) / 10, 1)}
    lines = json.dumps(begun).encode() + b"\\n" + b"".join(map(usage.encoded, rows))
    for index in range(count):
        with open(f"{folder}/{kind}-{index}.jsonl", "wb") as file:
            file.write(lines)
        if kind == "worker":
            points = [[now - 20, 100, 0.5], [now, 300, 0.4]]
            told = {"step": 300, "at": now, "metrics": {"loss": 0.4}, "points": points}
            with open(f"{reports}/{kind}-{index}.json", "w") as file:
                json.dump(told, file)
"""
START = "import sys; from tfcluster_magic.cli import main; sys.exit(main())"
ONCE = f"""
import os, subprocess, sys, time
def used():
    return os.times().children_user + os.times().children_system
for words in (["top", "--once", "scale"], ["status", "scale"]):
    began, before = time.monotonic(), used()
    command = [sys.executable, "-W", "ignore", "-c", {START!r}, *words]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()
    print(time.monotonic() - began, used() - before)
    tasks = sum(line.startswith(("worker-", "ps-")) for line in told.splitlines())
    assert words[0] == "status" or tasks == {TASKS}, told
"""
INSIDE = """
import time
from tfcluster_magic import ClusterManager
from tfcluster_magic.output.usage import usage_table
manager = ClusterManager()
manager.status("scale")
began = time.monotonic()
assert usage_table(manager.top("scale")).count("worker-") > 500
print(time.monotonic() - began)
"""
LIVE = f"""
import os, pty, signal, sys, threading
def read(fd):
    data = os.read(fd, 1 << 16)
    shown.append(data.count(b"STEPS/S"))
    return data
shown = []
pid, fd = pty.fork()
if pid == 0:
    os.environ.update(TERM="xterm", COLUMNS="200", LINES="50")
    os.execv(sys.executable, [sys.executable, "-W", "ignore", "-c", {START!r}, "top", "scale"])
threading.Timer(float(sys.argv[1]), os.kill, (pid, signal.SIGINT)).start()
try:
    while read(fd):
        pass
except OSError:
    pass
print(sum(shown))
"""


def top(site: Site, rounds: int) -> list[Row]:
    """Launch 600 tasks, put their samples on the volume, and run `tfcluster top`."""
    there = clusters.described(Cluster().state / "cluster.toml")
    with site.namespace("top") as namespace, phases(site.api, namespace) as told:
        kube = site.kubectl.within(namespace)
        kube.apply(*(claim(name, there.storage_class, "100Mi") for name in CLAIMS))
        for name in CLAIMS:
            kube.wait("pvc", name, _is_bound, "it is bound", 300)
        tenants.move_in(kube)
        site.api.create(path("tfclusters", namespace), record(RUN, WORKERS, PS))
        told.wait((namespace, RUN), "Running")
        kube.apply(tenants.notebook(there.images["notebook"]))
        try:
            kube.running(tenants.POD, 600)
            tenants.carry(kube, tenants.POD, [tenants.our_package()])
            return _looks(site, kube, rounds)
        finally:
            kube("delete", "pod", tenants.POD, "--wait=true")


def _is_bound(found: Object) -> bool:
    return bool(found["status"].get("phase") == "Bound")


def _python(kube: Kubectl, text: str, *words: str) -> str:
    command = ["env", f"PYTHONPATH={tenants.CARRIED}", "python", "-W", "ignore", "-c", text, *words]
    return kube.exec(tenants.POD, *command, seconds=600)


def _looks(site: Site, kube: Kubectl, rounds: int) -> list[Row]:
    recorded = json.loads(RECORDING.read_text())["samples"]
    counts = {"worker": WORKERS, "ps": PS}
    texts = {kind: recorded[f"{kind}-0"] for kind in counts}
    cluster, _dash, number = RUN.rpartition("-")
    place = f"/log/{cluster}/{number}"
    words = (tenants.CARRIED, place, json.dumps(counts), json.dumps(texts))
    _python(kube, FILL, *words)
    first, status, inside, cpu = list[float](), list[float](), list[float](), list[float]()
    for _round in range(max(3, rounds)):
        wall, used, other, _used = map(float, _python(kube, ONCE).split())
        first.append(wall)
        cpu.append(used)
        status.append(other)
        inside.append(float(_python(kube, INSIDE)))
        say(f"first table {wall:.2f} s ({used:.2f} s of CPU), status {other:.2f} s")
    idle, _shown = _requests(site, kube, ["sleep", str(SECONDS)])
    command = ["env", f"PYTHONPATH={tenants.CARRIED}", "python", "-W", "ignore", "-c", LIVE]
    live, shown = _requests(site, kube, [*command, str(SECONDS)])
    more = {key: round(live[key] - idle[key]) for key in live if live[key] > idle[key]}
    say(f"{shown.strip()} tables; more requests than without: {more}")
    note = f"a shell in a pod, {TASKS} tasks' samples on a volume; beside `status`; "
    note += f"{median(cpu):.2f} s of CPU"
    return [
        bounded("top_first_table", "s", first, at_most=1.0, baseline=status, note=note),
        bounded("top_in_kernel", "s", inside, at_most=1.0, note="the same in a running kernel"),
        bounded(
            "top_requests",
            "1/s",
            [sum(more.values()) / SECONDS],
            at_most=1.0,
            note=f"to the API server in {SECONDS} s with {shown.strip()} tables: {more}",
        ),
    ]


def _requests(site: Site, kube: Kubectl, command: Sequence[str]) -> tuple[Counter[str], str]:
    """Return the requests to the API server while a command runs in the pod, by verb and kind, and
    what it printed.
    """
    before = _counters(site)
    said = kube.exec(tenants.POD, *command, seconds=SECONDS + 120)
    found = _counters(site)
    found.subtract(before)
    return found, said


def _counters(site: Site) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in site.kubectl("get", "--raw", "/metrics").splitlines():
        if line.startswith("apiserver_request_total{"):
            words = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if words["resource"] in ASKED and words["subresource"] == "":
                found[f"{words['verb']} {words['resource']}"] += int(float(line.split()[-1]))
    return found
