"""Limits of the API server on the size and the number of a tenant's records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from kubenode.commands import wait_until
from kubenode.errors import NodeError
from support.invalid_specs import running
from support.kube.kubectl import Kubectl, Object
from support.kube.operator import Tenant
from support.payloads import SPECS, filled

from tfcluster_magic.backends.kubernetes import namespace_access
from tfcluster_magic.kube.api import labels
from tfcluster_magic.kube.api.client import Api, ApiError, path
from tfcluster_magic.spec import API_VERSION, Spec, resource_form
from tfcluster_magic.spec.record_size import OWNER_BYTES, RECORD_BYTES, STATUS_BYTES

MOST = 10
"""Quota of TFClusters in the tenant of these tests."""


@pytest.fixture(scope="module")
def bounded(new_tenant: Callable[[], Tenant]) -> Tenant:
    """A user's namespace with a quota of TFClusters that is in force."""
    tenant = new_tenant()
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "records"},
        "spec": {"hard": {labels.COUNTED_RECORDS: str(MOST)}},
    }

    def counts() -> bool:
        """Return whether the quota counts TFClusters. Replace it first, because a quota that is
        older than the CRD takes minutes to count them.
        """
        tenant.kubectl("delete", "resourcequota", "records", "--ignore-not-found")
        tenant.kubectl.apply(quota)
        return _counts(tenant.kubectl)

    wait_until(counts, "TFClusters are counted", seconds=120, every=1.0)
    return tenant


def _counts(kubectl: Kubectl) -> bool:
    try:
        wait = "--for=jsonpath={.status.used}"
        kubectl("wait", "resourcequota/records", wait, "--timeout=5s")
    except NodeError:
        return False
    return True


@pytest.fixture(scope="module")
def api(bounded: Tenant) -> Iterator[Api]:
    """The package's own client of the same API server."""
    from kubernetes.client.configuration import Configuration
    from kubernetes.config import load_kube_config

    configuration = Configuration()
    load_kube_config(bounded.kubectl.kubeconfig, client_configuration=configuration)
    api = Api(configuration)
    yield api
    api.close()


def record(name: str, spec: Object, **head: Any) -> Object:
    """Return a TFCluster as a user writes it, from a spec with Python's names of fields."""
    metadata, spec = {"name": name, **head}, resource_form.write(Spec, spec)
    return {"apiVersion": API_VERSION, "kind": "TFCluster", "metadata": metadata, "spec": spec}


def over(name: str) -> Object:
    """Return a run that ends at once, because its record already requests a stop."""
    return record(name, running(stop={"reason": "a test"}))


LARGE = {
    "0.9 MB of environment": (running(env={f"A{i}": "x" * 60_000 for i in range(15)}), {}),
    "letters of three bytes": (running(env={"A": "字" * 30_000}), {}),
    "arguments": ({"program": {**running()["program"], "arguments": ["x" * 40_000] * 2}}, {}),
    "a text full of what takes six bytes": (running(env={"A": "<" * 11_000}), {}),
    "annotations": (running(), {"annotations": {"example.com/a": "x" * 40_000}}),
    "annotations full of what takes six": (running(), {"annotations": {"a": "&" * 6_000}}),
    "labels": (running(), {"labels": {f"example.com/{i:030}": "x" * 60 for i in range(400)}}),
}


@pytest.mark.parametrize("what", LARGE)
def test_no_record_is_large(bounded: Tenant, api: Api, what: str) -> None:
    """The API server refuses a record with any field too large, and says how large the field may be
    and where to put larger data.
    """
    spec, head = LARGE[what]
    with pytest.raises(ApiError) as refused:
        api.create(path("tfclusters", bounded.name), record("large-1", spec, **head))
    assert refused.value.status == 422, refused.value.message
    if head:
        assert "32 KiB together" in refused.value.message
    else:
        assert "64 KiB together" in refused.value.message
        assert "workspace" in refused.value.message


def test_a_record_that_is_just_small_enough_is_taken(bounded: Tenant, api: Api) -> None:
    """The API server accepts a record of the largest size that a launch accepts."""
    spec = running(env={"A": "x" * 60_000, "B": "字" * 1_000})
    api.create(path("tfclusters", bounded.name), record("small-1", spec), dryRun="All")


@pytest.mark.parametrize("what", SPECS)
def test_the_limit_is_the_same_byte_as_in_a_launch(bounded: Tenant, api: Api, what: str) -> None:
    """For every text field the API server accepts 64 KiB, as a launch does, and refuses one byte
    more.
    """
    where = path("tfclusters", bounded.name)
    api.create(where, record("border-1", filled(SPECS[what])), dryRun="All")
    with pytest.raises(ApiError, match="64 KiB together"):
        api.create(where, record("border-1", filled(SPECS[what], bytes_left=-1)), dryRun="All")


def test_a_record_of_an_earlier_release_can_be_stopped_and_annotated(bounded: Tenant) -> None:
    """A record above today's limits, as from an earlier release, can still be stopped and
    annotated.

    A spec's texts are checked only at creation, and labels and annotations only if they grow. The
    test creates the record with an account that the policy exempts.
    """
    spec, marks = running(env={"A": "<" * 20_000}), {"a": "x" * 40_000, "b": ""}
    text = json.dumps(record("early-1", spec, annotations=marks))
    past = ("--as=system:kube-controller-manager", "--as-group=system:masters")
    bounded.kubectl("create", "-f", "-", *past, stdin=text)
    bounded.kubectl("annotate", "tfcluster", "early-1", "b-")
    with pytest.raises(NodeError, match="32 KiB together"):
        bounded.kubectl("annotate", "tfcluster", "early-1", "c=more")
    bounded.kubectl("annotate", "tfcluster", "early-1", "a-", "c=less")
    stop = json.dumps({"spec": {"stop": {"reason": "enough"}}})
    bounded.kubectl("patch", "tfcluster", "early-1", "--type=merge", f"--patch={stop}")
    bounded.kubectl("delete", "tfcluster", "early-1")


def test_the_largest_record_fits_its_budget(bounded: Tenant, api: Api) -> None:
    """The largest possible record stays within the bytes that etcd's budget counts for it.

    It has the largest program and annotations, with characters that take six bytes, and the most
    field managers.
    """
    where, content = path("tfclusters", bounded.name), "A" * 87_000
    spec = running()
    spec["program"] = {**spec["program"], "files": {"cell.py": content}, "source": "<" * 30}
    marks = {"example.com/a": "<" * 1700, **{f"example.com/{n}": "" for n in range(20)}}
    api.create(where, record("largest-1", spec, annotations=marks))
    with suppress(NodeError):
        for number in range(30):
            name = f"--field-manager={number:<<128}"
            bounded.kubectl("annotate", "tfcluster", "largest-1", f"example.com/{number}=1", name)
    found = bounded.kubectl("get", "--raw", f"{where}/largest-1")
    assert 100_000 < len(found.encode()) <= RECORD_BYTES - STATUS_BYTES
    bounded.kubectl("delete", "tfcluster", "largest-1")


def test_the_oldest_records_go_before_the_quota_is_reached(bounded: Tenant, api: Api) -> None:
    """The operator deletes the oldest ended runs before the quota is reached."""
    where = path("tfclusters", bounded.name)
    for number in range(1, MOST + 6):
        api.create(where, over(f"old-{number}"))
        bounded.wait(f"old-{number}", lambda s: s.get("releasedAt"), "it is over", 90)
    names = {each["metadata"]["name"] for each in bounded.kubectl.every("tfcluster")}
    assert f"old-{MOST + 5}" in names
    assert {"old-1", "old-2", "old-3"} & names == set()
    assert len(names) < MOST
    assert "it is the oldest of" in bounded.operator.log()


def test_a_full_namespace_refuses_and_says_how_many_there_may_be(bounded: Tenant, api: Api) -> None:
    """The quota refuses launches that come faster than the operator deletes records. The client
    reads the allowed number from the refusal.
    """

    def launch_many() -> None:
        for number in range(1, 500):
            api.create(path("tfclusters", bounded.name), over(f"fast-{number}"))

    with pytest.raises(ApiError) as refused:
        launch_many()
    assert namespace_access.exceeded_record_limit(refused.value) == MOST, refused.value.message


def test_the_field_managers_of_a_record_are_limited(bounded: Tenant) -> None:
    """The number of a record's field managers is limited, and the names of environment variables
    are not stored again for each of them.
    """
    spec = running(env={f"A{i:0250}": "" for i in range(100)})
    text = json.dumps(record("owned-1", spec))

    def write_under_many_names() -> None:
        for number in range(20):
            name = f"--field-manager=m{number}"
            bounded.kubectl("apply", "--server-side", name, "-f", "-", stdin=text)

    with pytest.raises(NodeError, match="under names of their own"):
        write_under_many_names()
    whole = json.loads(
        bounded.kubectl("get", "--raw", f"{path('tfclusters', bounded.name)}/owned-1")
    )
    assert 5 < len(whole["metadata"]["managedFields"]) < 20
    assert len(json.dumps(whole["metadata"]["managedFields"])) <= OWNER_BYTES
    bounded.kubectl("delete", "tfcluster", "owned-1")
