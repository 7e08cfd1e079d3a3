"""JupyterLab with the Kubernetes backend: flows of the browser tests in tests/ui, and views that
only runs on Kubernetes have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubenode.commands import wait_until
from playwright.sync_api import BrowserContext, Locator, expect
from support.kube import tenants, webhook_receiver
from support.kube.lab import KubernetesLab
from support.kube.operator import Tenant
from support.ui import browser as pages
from support.ui import flows, launch_form
from support.ui.page import LabPage

pytestmark = pytest.mark.needs("rwx")

UNCHANGED = (flows.rerun,)
"""Flows of tests/ui that also run here. The tests below cover launches, output and deletions, and
test_user_journey.py covers stops.
"""
LONG = (
    flows.stop,
    flows.tell_a_failure_once,
    flows.launch_the_active_cell,
    flows.read_all_tasks,
    flows.launch_what_fails,
    flows.insert_the_line,
    flows.launch_the_copied_line,
    flows.count_in_the_status_bar,
    flows.show_a_deleted_run,
    flows.read_odd_output,
)
"""Further flows of tests/ui. They run only with `--long`, because they make the same API calls as
the others.
"""
assets, context, open_page, form = pages.assets, pages.context, pages.open_page, launch_form.form
STEPS = """\
import time

for step in range(400):
    print("step", step, flush=True)
    time.sleep(0.1)
"""


PROJECT = """\
program: train.py
memory: 1Gi
max-duration: 15s
grace: 1s
"""
UNTIL_TOLD = """\
import os, time

while not os.path.exists("/tmp/enough"):
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """The machine's Chromium; it is closed after this file because it holds an event loop."""
    with pages.chromium(tmp_path_factory.mktemp("profile")) as profile:
        yield profile


@pytest.fixture(scope="module")
def shared_lab(
    new_tenant: Callable[[], Tenant], assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubernetesLab]:
    """The only JupyterLab of this file, for one tenant."""
    tenant = new_tenant()
    tenants.move_in(tenant.kubectl)
    folder = tmp_path_factory.mktemp("lab")
    kubeconfig = tenants.kubeconfig(tenant.kubectl, folder / "kubeconfig")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(kubeconfig))
        lab = KubernetesLab(folder, assets, tenant, kubeconfig)
        lab.start()
        yield lab
        lab.close()


@pytest.fixture
def server(shared_lab: KubernetesLab) -> Iterator[KubernetesLab]:
    """The shared JupyterLab; everything that the test started is ended afterwards."""
    yield shared_lab
    shared_lab.clean()


@pytest.fixture
def lab(server: KubernetesLab, open_page: Callable[..., LabPage]) -> LabPage:
    """A page with JupyterLab in its default layout."""
    return open_page(server)


@pytest.fixture
def shots(request: pytest.FixtureRequest) -> Path:
    """Path and name prefix of this test's screenshots."""
    return pages.picture(request.node, "lab-on-kubernetes")


@pytest.fixture
def narrow(server: KubernetesLab) -> Iterator[None]:
    """A quota in which the tenant can run one small task."""
    kube = server.tenant.kubectl
    quota = {"metadata": {"name": "narrow"}, "spec": {"hard": {"requests.memory": "1280Mi"}}}
    kube.apply({"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    kube.wait("resourcequota", "narrow", lambda found: found.get("status"), "the quota is in force")
    yield
    kube("delete", "resourcequota", "narrow")


def tenant_of(lab: LabPage) -> Tenant:
    """Return the tenant whose runs a page shows."""
    assert isinstance(lab.server, KubernetesLab)
    return lab.server.tenant


def phase(lab: LabPage, name: str, wanted: str) -> None:
    """Wait until the row of a run shows this phase."""
    expect(flows.row(lab, name)).to_have_attribute("data-phase", wanted)


@pytest.mark.parametrize(
    "flow",
    [*UNCHANGED, *(pytest.param(flow, marks=pytest.mark.long) for flow in LONG)],
    ids=lambda flow: flow.__name__,
)
def test_the_flows_of_one_machine_work_on_pods(
    lab: LabPage, flow: Callable[[LabPage], None]
) -> None:
    """Flows that tests/ui runs with tasks on one machine work unchanged with tasks in pods."""
    flow(lab)


def test_the_form_launches_pods_and_the_sidebar_follows_them(lab: LabPage, form: Locator) -> None:
    """Options in the form's section Pods reach the pods, and the sidebar follows the run until it
    succeeds.
    """
    lab.page.evaluate(
        """() => {
            const seen = (window.__phases = []);
            new MutationObserver(() => {
                const row = document.querySelector(".tfc-RunRow[data-run='digits-1']");
                const phase = row?.dataset.phase;
                if (phase && phase !== seen.at(-1)) seen.push(phase);
            }).observe(document.body, { attributes: true, childList: true, subtree: true });
        }"""
    )
    (lab.server.root / "short.py").write_text(UNTIL_TOLD)
    form.get_by_label("Path of the program").fill("short.py")
    form.get_by_label("Name", exact=True).fill("digits")
    form.locator("summary", has_text="Pods").click()
    form.get_by_label("Annotations").fill("tests.tfcluster.dev/word=here")
    lab.screenshot("pods", form)
    expect(form.locator(".tfc-Line code")).to_contain_text("--annotation")
    launch_form.launch(form)
    expect(form.get_by_text("digits-1 was launched.")).to_be_visible()
    phase(lab, "digits-1", "Running")
    lab.screenshot("running")
    for pod in tenant_of(lab).pods("digits-1"):
        tenant_of(lab).kubectl.exec(pod["metadata"]["name"], "touch", "/tmp/enough")
    phase(lab, "digits-1", "Succeeded")
    seen = lab.page.evaluate("() => window.__phases")
    assert [each for each in seen if each != "Queued"] == ["Starting", "Running", "Succeeded"]
    lab.server.manager.wait("digits-1", 180)
    pods = tenant_of(lab).pods("digits-1", "worker")
    words = [pod["metadata"]["annotations"].get("tests.tfcluster.dev/word") for pod in pods]
    assert words == ["here", "here"]


def test_a_cell_shows_its_pods_live(lab: LabPage) -> None:
    """The card below the launching cell follows a run from Starting to its end. Its button opens
    the output of all pods, which stays in the tab when the pods are gone.
    """
    (lab.server.root / "steps.py").write_text(STEPS)
    card = flows.card(lab)
    lab.run(f"{flows.LOAD}%tfcluster launch steps.py --workers 2 --name cell")
    lab.screenshot("starting")
    expect(card).to_contain_text("Running")
    expect(card).to_contain_text("2 of 2 running")
    lab.screenshot("running")
    card.get_by_role("button", name="Logs cell-1").click()
    lines = lab.page.get_by_role("log", name="Output of cell-1")
    for task in ("worker-0", "worker-1"):
        expect(lines).to_contain_text(re.compile(rf"{task} \| step \d+"))
    lab.screenshot("lines")
    lab.server.manager.stop("cell-1", "enough")
    expect(flows.tab(lab).locator("footer")).to_contain_text("enough")
    expect(lines).to_contain_text("worker-1 | step")
    lab.open("notebook.ipynb")
    expect(card).to_contain_text("Stopped")
    lab.theme("dark")
    lab.screenshot("stopped-dark")


def test_a_nightly_project_is_replaced_ended_and_told(lab: LabPage) -> None:
    """The nightly run of a project replaces the active one, ends at its maximum duration, and
    notifies its owner by webhook. The sidebar, the calendar and kubectl show this.
    """
    tenant, verbs = tenant_of(lab), lab.server.manager
    receiver = webhook_receiver.start(tenant)
    receiver.set_up(True)
    verbs.notifications.add("team", webhook=receiver.url, on=["failed"])
    project = lab.server.root / "digits"
    project.mkdir()
    (project / "tfcluster.yaml").write_text(PROJECT)
    (project / "train.py").write_text("import time\ntime.sleep(600)\n")
    when = {"cron": "0 2 * * *", "time_zone": "Asia/Shanghai", "overlap": "replace"}
    verbs.schedules.create("nightly", str(project), **when)
    schedules = lab.sidebar.locator(".tfc-Fold", has_text="Schedules")
    schedules.locator("summary").click()
    lab.sidebar.get_by_role("button", name="Refresh").click()
    for number in (1, 2):
        schedules.get_by_role("button", name="Run nightly now").click()
        phase(lab, f"nightly-{number}", "Running")
    assert "schedule nightly" in tenant.phase("nightly-1", "Stopped")["message"]
    assert "tfclusterschedule.tfcluster.dev/nightly" in tenant.kubectl("get", "tfcs,tfc")
    phase(lab, "nightly-2", "Failed")
    dots = schedules.get_by_role("img")
    expect(dots).to_have_attribute("aria-label", re.compile("Stopped.*Failed"), timeout=60_000)
    schedules.get_by_role("button", name="nightly", exact=True).click()
    expect(lab.page.locator(".tfc-Calendar-list")).to_contain_text("nightly-2")
    lab.screenshot("nightly")
    assert tenant.phase("nightly-2", "Failed")["reason"] == "MaxDuration"
    wait_until(receiver.got, "its owner is told", seconds=120)
    assert [(each["about"], each["occasion"]) for each in receiver.got()] == [
        ("nightly-2", "failed")
    ]
    verbs.schedules.delete("nightly")


def test_a_run_that_waits_says_for_what(lab: LabPage, narrow: None) -> None:
    """A run that does not fit into the quota is Queued, says which run uses the quota, and starts
    later.
    """
    size = {"workers": 1, "ps": 0, "worker_memory": "768Mi"}
    for name in ("first", "second"):
        lab.server.launch("sleep.py", name=name, **size)
    phase(lab, "first-1", "Running")
    phase(lab, "second-1", "Queued")
    expect(flows.row(lab, "second-1")).to_contain_text("used by first-1")
    lab.screenshot("queued")
    lab.server.manager.stop("first-1", "room")
    phase(lab, "second-1", "Running")


def test_a_session_from_outside_is_refused(lab: LabPage) -> None:
    """A user who connects to In-Graph servers from outside the cluster is told to connect in a
    notebook of the cluster.
    """
    lab.server.launch(None, workers=1, ps=0, mode="in-graph", name="drive")
    phase(lab, "drive-1", "Running")
    lab.notebook("1 + 1")
    lab.cell().locator(".cm-content").click()
    flows.row(lab, "drive-1").click(button="right")
    lab.page.get_by_role("menuitem", name="Connect a Session").click()
    expect(lab.cell(1)).to_contain_text("session = cluster.session()")
    told = lab.run_cell(1)
    expect(told).to_contain_text("addresses inside the cluster (drive-1-worker-0.drive-1:2222)")
    expect(told).to_contain_text("connect in a notebook there")
    lab.screenshot("refused")


def test_a_run_with_output_on_an_unmounted_volume(lab: LabPage) -> None:
    """If the output's volume is not mounted, TensorBoard and the output of deleted pods say so, and
    say where to read the output.

    A delete with the output is refused before it stops anything; a delete without it removes the
    run and its pods.
    """
    lab.console.allow("api/tensorboards|elsewhere-1/logs|api/clusters")
    flows.launch_sleeping(lab, "elsewhere")
    lab.execute("tfcluster:tensorboard", name="elsewhere-1")
    alert = lab.page.locator("[role='alert']:visible")
    expect(alert).to_contain_text("not mounted here: do this in a notebook")
    lab.screenshot("curves")

    flows.row(lab, "elsewhere-1").focus()
    lab.page.keyboard.press("Delete")
    lab.dialog.get_by_label("Delete its logs and output, too").check()
    lab.dialog.get_by_role("button", name="Delete", exact=True).click()
    refusal = lab.page.locator(".Toastify__toast", has_text="not mounted here")
    expect(refusal).to_be_visible()
    lab.screenshot("refused")
    assert lab.server.manager.status("elsewhere-1").spec.stop is None

    lab.server.manager.stop("elsewhere-1", "enough")
    wait_until(lambda: not tenant_of(lab).pods("elsewhere-1"), "its pods are gone", seconds=120)
    lab.execute("tfcluster:logs", name="elsewhere-1")
    expect(flows.tab(lab)).to_contain_text("read /log/elsewhere/1 in a notebook of the cluster")
    lab.screenshot("lines")

    flows.row(lab, "elsewhere-1").focus()
    lab.page.keyboard.press("Delete")
    lab.dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(lab.sidebar).to_contain_text("No clusters yet")
    tenant = tenant_of(lab)
    wait_until(lambda: not tenant.left_of("elsewhere-1"), "nothing of it is left", seconds=120)
