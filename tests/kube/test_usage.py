"""The usage and the stacks of tasks, as a user reads them in a notebook's pod.

All pods are under Pod Security "restricted". The command line and the REST API have only the user's
rights.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from kubenode.commands import wait_until
from support.kube import tenants
from support.kube.kubectl import Object
from support.kube.operator import GRAFANA, Tenant, spec_of

from tfcluster_magic.spec import Replicas, ReplicaSet, Resources

pytestmark = pytest.mark.needs("rwx", "network-policy")

PROGRAM = """
import json, os, socket, threading

config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]

def address(of):
    host, _colon, port = config["cluster"]["worker"][of].rpartition(":")
    return host, int(port)

def compute_and_send():
    while True:
        try:
            with socket.create_connection(address(1), 5) as peer:
                while True:
                    peer.sendall(bytes(100_000))
                    sum(range(100_000))
        except OSError:
            pass

def receive():
    with socket.create_server(("", address(1)[1])) as server:
        while True:
            peer, _from = server.accept()
            while peer.recv(1 << 20):
                pass

def hang():
    lock = threading.Lock()
    with lock:
        lock.acquire()  # it hangs here

(compute_and_send, receive, hang)[index]()
"""
CPU = 0.3
PORT, TOKEN = 8899, "secret-of-the-test"
SERVE = f"""
cd /home/jovyan && mkdir -p /tmp/config && export PYTHONPATH={tenants.CARRIED}
export JUPYTER_CONFIG_DIR=/tmp/config JUPYTER_TOKEN={TOKEN}
nohup python -m jupyter_server --port={PORT} --no-browser \
  --ServerApp.jpserver_extensions='{{"tfcluster_magic.server": True}}' >/tmp/server.log 2>&1 &
"""
GET = """
import sys, urllib.request
asked = urllib.request.Request(sys.argv[1], headers={"Authorization": "token " + sys.argv[2]})
print(urllib.request.urlopen(asked, timeout=30).read().decode())
"""


@pytest.fixture(scope="module")
def home(new_tenant: Callable[[], Tenant], tmp_path_factory: pytest.TempPathFactory) -> Tenant:
    """A tenant with a notebook that has this clone's package, and the run `used-1`: worker-0
    computes and sends, worker-1 receives, worker-2 hangs.
    """
    tenant = new_tenant()
    tenants.move_in(tenant.kubectl)
    path = tmp_path_factory.mktemp("program") / "train.py"
    path.write_text(PROGRAM)
    workers = Replicas(count=3, resources=Resources(cpu=CPU, memory="256Mi"))
    tenant.launch("used-1", spec_of(path, replicas=ReplicaSet(worker=workers)))
    tenant.kubectl.apply(tenants.notebook(tenant.image))
    tenant.kubectl.running(tenants.POD)
    tenants.carry(tenant.kubectl, tenants.POD, [tenants.our_package()])
    tenant.phase("used-1", "Running")
    return tenant


def _cli(home: Tenant, words: str) -> str:
    """Return what a command of the CLI prints in the notebook."""
    start = "import sys; from tfcluster_magic.cli import main; sys.exit(main())"
    command = f"cd && PYTHONPATH={tenants.CARRIED} python -W ignore -c '{start}' {words}"
    return home.kubectl.exec(tenants.POD, "sh", "-c", command)


def _is_sampled(task: Object) -> bool:
    return bool(task["current"]) and task["current"]["seconds"] >= 4


def test_top_shows_what_each_task_uses(home: Tenant) -> None:
    """`tfcluster top` shows, for each pod, the use of CPU with its limit and throttling, of memory
    with its limit, and of the network. The REST route returns the same figures, and all samples
    of a task.
    """
    found: dict[str, Object] = {}

    def told() -> bool:
        usage = json.loads(_cli(home, "top -o json used"))
        found.update({task["name"]: task for task in usage["tasks"]})
        busy, receiver = found["worker-0"]["current"], found["worker-1"]["current"]
        return (
            all(map(_is_sampled, found.values()))
            and busy["sent"] > 100_000 < receiver["received"]
            and busy["throttled"] > 0.05
        )

    wait_until(told, "all tasks are sampled", seconds=60, every=1.0)
    assert set(found) == {"worker-0", "worker-1", "worker-2"}
    for task in found.values():
        assert task["cpuRequested"] == CPU
        assert task["memoryRequested"] == 256 << 20
        assert 1 << 20 < task["current"]["memory"] < 256 << 20
    assert CPU / 2 < found["worker-0"]["current"]["cpu"] < CPU * 1.5
    assert found["worker-2"]["current"]["throttled"] == 0
    table = _cli(home, "top used").splitlines()
    (head,) = [line.split() for line in table if line.startswith("TASK")]
    assert head[:6] == ["TASK", "CPU", "THROTTLED", "MEMORY", "PEAK", "RECEIVED"]
    first = next(line for line in table if line.startswith("worker-"))
    assert first.startswith("worker-0")
    assert f"of {CPU}" in first
    _served(home, found)


def _served(home: Tenant, found: dict[str, Object]) -> None:
    """Check the REST routes of a server in the notebook."""
    kube = home.kubectl
    kube.exec(tenants.POD, "sh", "-c", SERVE)
    url = f"http://127.0.0.1:{PORT}/tfcluster/api/clusters/used-1/usage?task=worker-0"
    asked = ("python", "-c", GET, url, TOKEN)
    wait_until(lambda: kube.succeeds(tenants.POD, *asked), "the server answers", seconds=60)
    answer = json.loads(kube.exec(tenants.POD, *asked))
    assert [task["name"] for task in answer["usage"]["tasks"]] == list(found)
    columns = answer["series"]["worker-0"]
    assert len(columns["at"]) > 2
    assert max(columns["throttled"]) > 0.05
    assert max(columns["sent"]) > 100_000
    kube.exec(tenants.POD, "python", "-c", GET, url.partition("/used-1")[0], TOKEN)
    run = json.loads(kube.exec(tenants.POD, "python", "-c", GET, url.partition("/usage")[0], TOKEN))
    since = int((run["cluster"]["metadata"]["createdAt"] - 60) * 1000)
    dashboard = f"{GRAFANA}d/tfcluster-run?var-namespace={home.name}"
    assert run["graphs"].startswith(f"{dashboard}&var-run=used-1&from={since // 10}")
    assert run["graphs"].endswith("&to=now")


def test_a_deadlocked_worker_shows_its_line(home: Tenant) -> None:
    """`tfcluster stack` of a worker that hangs in a pod names the line, and the run continues."""
    line = 1 + PROGRAM.splitlines().index("        lock.acquire()  # it hangs here")
    said = _cli(home, "stack used worker-2")
    assert f"line {line} in hang" in said
    assert "most recent call first" in said
    assert home.status("used-1")["phase"] == "Running"


def test_usage_is_kept_with_the_output(home: Tenant) -> None:
    """The usage of an ended run is shown until its output, which has the samples, is removed."""
    _cli(home, "stop used")
    home.wait("used-1", lambda status: status.get("releasedAt"), "it is over")
    kept = json.loads(_cli(home, "top -o json used"))
    assert kept["ended"]
    assert all(task["average"] and task["memoryPeak"] for task in kept["tasks"])
    assert f"asked for {CPU} CPU" in _cli(home, "top used")
    files = ("find", "/log", "-path", "*/.tfcluster-usage/*")
    kube = home.kubectl
    assert len(kube.exec(tenants.POD, *files).split()) == 3
    _cli(home, "delete --with-logs --yes used-1")
    wait_until(lambda: not home.left_of("used-1"), "its record is gone", seconds=60)
    assert kube.exec(tenants.POD, *files) == ""
