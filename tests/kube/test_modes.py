"""Programs in pods: their options, their sources, and every task type."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kubenode import images, registry
from kubenode.buildah import buildah
from kubenode.commands import wait_until
from kubenode.paths import ROOT
from support.kube import tenants
from support.kube.kubectl import Kubectl, Object
from support.kube.operator import Tenant
from support.kube.under_test import UnderTest
from support.kube.workloads import pod, service
from support.public_programs import FOLDER, PROGRAMS

pytestmark = pytest.mark.needs("rwx", "network-policy")

LOOK = """
import http.server, json, os, pathlib, time, urllib.request
import greetings

keys = {key.name: key.read_text() for key in pathlib.Path("/mnt/s3").iterdir() if key.is_file()}


class Bucket(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = "AWS {AWS_ACCESS_KEY_ID}:{AWS_SECRET_ACCESS_KEY}".format(**keys)
        self.send_response(200 if self.headers["Authorization"] == known else 403)
        self.end_headers()
        self.wfile.write(self.path.encode())


def fetched(name):
    request = urllib.request.Request(os.environ["AWS_ENDPOINT_URL"] + name)
    mine = "AWS {AWS_ACCESS_KEY_ID}:{AWS_SECRET_ACCESS_KEY}".format(**os.environ)
    request.add_header("Authorization", mine)
    until = time.monotonic() + 60
    while True:
        try:
            return urllib.request.urlopen(request, timeout=2).read().decode()
        except OSError as error:
            if time.monotonic() > until:
                return repr(error)
        time.sleep(0.2)


def written(folder):
    try:
        pathlib.Path(folder, "mark").write_text("mine")
    except OSError as error:
        return type(error).__name__
    return "yes"


if os.environ["TFCLUSTER_TASK"] == "worker-1":
    http.server.HTTPServer(("", 2222), Bucket).handle_request()
else:
    told = {
        "variable": os.environ["GREETING"],
        "package": greetings.WORD,
        "bucket": fetched("/bucket/digits"),
        "written": {each: written(each) for each in ("/mnt/extra", "/mnt/part", "/data", "/log")},
        "data": os.listdir("/data"),
    }
    print("TOLD", json.dumps(told), flush=True)
"""
WHEEL = """
import subprocess, sys, zipfile
with zipfile.ZipFile('greetings-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('greetings.py', 'WORD = "from a package"')
    about = 'greetings-1.0.dist-info/'
    wheel.writestr(about + 'METADATA', 'Metadata-Version: 2.1\\nName: greetings\\nVersion: 1.0\\n')
    kind = 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'
    wheel.writestr(about + 'WHEEL', kind)
    wheel.writestr(about + 'RECORD', '')
pip = [sys.executable, '-m', 'pip', 'install', '--quiet', '--user', '--no-index', wheel.filename]
print(subprocess.run(pip, capture_output=True, text=True).stderr)
"""
OPTIONS = """--workers 2 --env "GREETING=hello world" --secret s3
 --secret s3:/mnt/s3 --volume extra:/mnt/extra --volume extra/part:/mnt/part:ro --data-claim 20Mi
 --annotation tests.tfcluster.dev/word=here""".replace("\n", "")
GIVEN = [
    "%load_ext tfcluster_magic",
    WHEEL,
    f"%%tfcluster launch --name given {OPTIONS} --wait\n{LOOK}",
    "from tfcluster_magic import Cluster; print(Cluster('given').logs())",
]
PLAIN = """
import importlib.util, os, sys
for name in ("tfcluster_magic", "tensorflow"):
    print(name, importlib.util.find_spec(name) is not None)
print("attempt", os.environ["TFCLUSTER_ATTEMPT"])
"""
EXAMPLES = f"{tenants.CARRIED}/examples"
TRAIN = [
    "%load_ext tfcluster_magic",
    (
        "kinds = %tfcluster launch --name kinds --chief --evaluator --workers 2 --ps 1"
        f" --success-policy chief {EXAMPLES}/parameter_server_keras.py -- --epochs 2"
    ),
    "kinds.wait(400); print('COUNTS', sorted(kinds.status.counts))",
    "print('CHIEF', kinds.logs('chief-0')); print('EVALUATOR', kinds.logs('evaluator-0'))",
]
DRIVE = [
    "%load_ext tfcluster_magic",
    f"import sys; sys.path.insert(0, {EXAMPLES!r}); import in_graph_pss",
    "cluster = %tfcluster launch --name drive --mode in-graph --workers 2 --ps 1",
    "cluster.wait_ready(400); kept = cluster.status.paths['output']",
    "print('DRIVEN', in_graph_pss.train(cluster, 200, kept)); cluster.stop()",
]

BROUGHT = f"{tenants.CARRIED}/programs"
BRING = f"""
import json, subprocess, sys
from tfcluster_magic import Cluster
from tfcluster_magic.errors import ClusterFailed


def tfcluster(*words, folder={BROUGHT!r}):
    command = [sys.executable, "-c", "from tfcluster_magic.cli import main; main()", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return done.stdout + done.stderr


def tell(name, said):
    run = Cluster(name.replace("_", "-"))
    try:
        run.wait(400)
    except ClusterFailed:
        pass
    counts = {{kind: count.desired for kind, count in run.status.counts.items()}}
    shown = tfcluster("status", run.name)
    step = json.loads(tfcluster("status", run.name, "-o", "json")).get("progress") or {{}}
    told = [name, run.status.phase.value, counts, run.logs(), said + shown, step.get("step")]
    print("BROUGHT", json.dumps(told))


said = {{
    name: tfcluster(
        "launch", "--name", name.replace("_", "-"), *words, folder={BROUGHT!r} + "/" + name
    )
    for name, words in WORDS.items()
}}
for name, text in said.items():
    tell(name, text)
"""


@pytest.fixture(scope="module")
def home(new_tenant: Callable[[], Tenant], cluster: UnderTest) -> Tenant:
    """A tenant with a notebook, a Secret for tasks and one more claim."""
    tenant = new_tenant()
    kube = tenant.kubectl
    s3 = {
        "AWS_ENDPOINT_URL": "http://given-1-worker-1.given-1:2222",
        "AWS_ACCESS_KEY_ID": "alice",
        "AWS_SECRET_ACCESS_KEY": "hush",
    }
    labels = {"tfcluster.dev/for-tasks": "true"}
    claim = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": cluster.description.storage_class,
        "resources": {"requests": {"storage": "10Mi"}},
    }
    made = {"apiVersion": "v1", "metadata": {"name": "extra"}, "spec": claim}
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "stringData": s3}
    kube.apply(
        {**made, "kind": "PersistentVolumeClaim"},
        {**secret, "metadata": {"name": "s3", "labels": labels}},
    )
    tenants.move_in(kube)
    kube.apply(tenants.notebook(tenant.image))
    kube.running(tenants.POD)
    tenants.carry(
        kube,
        tenants.POD,
        [tenants.our_package(), (ROOT / "examples", "examples"), (FOLDER, "programs")],
    )
    return tenant


def test_a_program_gets_its_options(home: Tenant, tmp_path: Path) -> None:
    """The pods of a cell's program have the variables, Secret, claims and annotation that the
    launch requests, and the packages that the user has installed in the notebook.

    worker-1 is an object store, from which worker-0 reads with the credentials of the Secret.
    worker-1 has them as files, worker-0 as variables. Each claim can be written to, except one that
    is mounted read-only. The claim that `--data-claim` creates is deleted with the run.
    """
    said = tenants.run_cells(home.kubectl, GIVEN, tmp_path)
    found = re.search(r"TOLD (.*)", said)
    assert found, said
    assert json.loads(found[1]) == {
        "variable": "hello world",
        "package": "from a package",
        "bucket": "/bucket/digits",
        "written": {"/mnt/extra": "yes", "/mnt/part": "OSError", "/data": "yes", "/log": "yes"},
        "data": ["mark"],
    }
    pods = home.pods("given-1")
    assert {each["metadata"]["annotations"]["tests.tfcluster.dev/word"] for each in pods} == {
        "here"
    }
    claims = [each["metadata"]["name"] for each in home.kubectl.every("pvc")]
    assert "given-1-data" in claims
    home.kubectl("delete", "tfcluster", "given-1")
    wait_until(lambda: not home.left_of("given-1"), "nothing of it is left", seconds=120)
    assert home.kubectl("get", "pvc", "extra", "-o=jsonpath={.status.phase}") == "Bound"


def test_a_program_from_a_url_in_another_image(
    cluster: UnderTest, home: Tenant, new_namespace: Callable[[], Kubectl], tmp_path: Path
) -> None:
    """A program at a URL inside the cluster runs in an image that has only Python."""
    assert cluster.own
    python = images.Image("python", images.base().rpartition(":")[2])
    buildah(["tag", images.base(), python.reference])
    registry.push(python, cluster.own.first)
    elsewhere = new_namespace()
    write = f"mkdir /tmp/w && cat >/tmp/w/plain.py <<'END'\n{PLAIN}\nEND\n"
    serve = f"{write}exec httpd -f -p 8080 -h /tmp/w"
    elsewhere.apply(pod("web", cluster.busybox, "sh", "-c", serve), service("web", "web", 8080))
    elsewhere.running("web")
    url = f"http://web.{elsewhere.namespace}:8080/plain.py"
    asked = ["wget", "-q", "-O-", url]  # this request fails until the Service has endpoints
    wait_until(lambda: elsewhere.succeeds("web", *asked), f"{url} answers", seconds=60)
    cells = [
        "%load_ext tfcluster_magic",
        f"%tfcluster launch {url} --workers 1 --image {python.reference} --wait",
        "from tfcluster_magic import Cluster; print(Cluster('plain').logs())",
    ]
    said = tenants.run_cells(home.kubectl, cells, tmp_path)
    assert all(word in said for word in ("tfcluster_magic False", "tensorflow False", "attempt 1"))
    (ran,) = home.pods("plain-1")
    assert ran["spec"]["containers"][0]["image"] == python.reference


# Only `--long` runs this test: test_examples.py trains with ParameterServerStrategy in pods and has
# every task type, and tests/integration/test_training_modes.py covers the evaluator.
@pytest.mark.long
def test_every_kind_of_task_trains(home: Tenant, tmp_path: Path) -> None:
    """ParameterServerStrategy learns the digits with a chief, an evaluator, workers and a parameter
    server in pods.
    """
    said = tenants.run_cells(home.kubectl, TRAIN, tmp_path)
    assert "COUNTS ['chief', 'evaluator', 'ps', 'worker']" in said
    learned = re.search(r"CHIEF [\s\S]*held-out accuracy: (\S+)", said)
    assert learned, said
    assert float(learned[1]) > 0.8
    assert re.search(r"EVALUATOR [\s\S]*accuracy", said), said


@pytest.mark.long  # tests/programs covers the same on one machine
def test_programs_of_users_run_in_pods(home: Tenant, tmp_path: Path) -> None:
    """Each program of tests/programs gets the tasks it needs, ends in pods as on one machine, and
    the launch says what it inferred.
    """
    programs = {each.name: each for each in PROGRAMS if each.in_pods}
    words = {name: each.words for name, each in programs.items()}
    said = tenants.run_cells(home.kubectl, [f"WORDS = {words!r}", BRING], tmp_path)
    told = [json.loads(line) for line in re.findall(r"^BROUGHT (.*)$", said, re.MULTILINE)]
    assert [name for name, *_ in told] == list(programs), said
    for name, phase, counts, logs, texts, step in told:
        program = programs[name]
        assert phase == program.phase.value, (name, texts, logs)
        assert {kind: n for kind, n in counts.items() if n} == program.tasks, (name, texts)
        assert all(text in logs for text in program.prints.values()), (name, logs)
        assert all(text in " ".join(texts.split()) for text in program.says), (name, texts)
        assert program.step in (None, step), (name, step, texts)


@pytest.mark.long  # test_user_journey.py also drives In-Graph servers in pods
def test_a_notebook_coordinates_servers_in_pods(home: Tenant, tmp_path: Path) -> None:
    """ParameterServerStrategy learns the digits on In-Graph servers in pods, coordinated by a
    notebook.
    """
    said = tenants.run_cells(home.kubectl, DRIVE, tmp_path)
    driven = re.search(r"DRIVEN (0\.\d+|1\.0)", said)
    assert driven, said
    assert float(driven[1]) > 0.8
