"""The launch options that the operator publishes in each namespace, and when it writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.admission_cluster import Place, there

from tfcluster_magic.kube.api.labels import MOUNTED_AT
from tfcluster_magic.kube.objects.policy import SharedClaim
from tfcluster_magic.quota.preflight import Limit

__all__ = ["there"]  # a fixture of another module


def test_options_are_written_when_they_change() -> None:
    """The options of many namespaces are written once, and not again without a change. New pods
    cause no write while more resources are free than the quotas allow. If the use of a quota
    changes, only the options of its namespace are written.
    """
    place = Place()
    try:
        for number in range(20):
            place.node(f"node-{number}", 64)
        for number in range(40):
            place.tenant(f"user-{number}", quota="16")
        place.begin()

        def writes(change: Callable[[], None]) -> int:
            change()
            place.seen()
            before = place.publisher.writes
            place.publisher.publish()
            return place.publisher.writes - before

        place.publisher._enough.wait = lambda _seconds=None: False  # type: ignore[method-assign]
        assert writes(lambda: None) == 40
        told = place.server.objects["/api/v1/namespaces/user-7/configmaps/tfcluster-options"][
            "data"
        ]
        assert told["limits.of"] == told["offer.json"], "limits of another offer do not count"
        assert writes(lambda: None) == 0
        assert writes(lambda: place.pod("user-0", "x-1", 0, "node-1", "40")) == 0
        used = {"requests.cpu": "8"}
        where = "/api/v1/namespaces/user-7/resourcequotas/tasks"
        quota = place.server.objects[where]
        assert writes(lambda: void(place.server.put(where, _used(quota, used)))) == 1
        assert writes(lambda: place.node("node-50", 64)) == 40
    finally:
        place.end()


def void(_value: object) -> None:
    """Do nothing."""


def _used(quota: dict[str, Any], used: dict[str, str]) -> dict[str, Any]:
    return {**quota, "status": {**quota["status"], "used": used}}


@pytest.mark.parametrize(
    ("free", "told"), [(100, 100), (99, 87.5), (30, 25), (20, 18.75), (5, 4.6875), (0, 0), (-1, 0)]
)
def test_amounts_are_coarse_where_there_is_plenty(free: float, told: float) -> None:
    """Large free amounts are published in coarse steps, always rounded down."""
    from tfcluster_magic.operator.scheduling.published_options import coarse_limit

    assert coarse_limit(Limit(total=100, free=free)).free == told


def test_a_claim_that_says_where_is_mounted_in_all_tasks_of_its_namespace(there: Place) -> None:
    """The annotated claims of a namespace are in its policy and its published options; claims of
    other namespaces and invalid claims are not.
    """
    for name, where in (("images", "/mnt/images"), ("odd", "a:b")):
        path = f"/api/v1/namespaces/alice/persistentvolumeclaims/{name}"
        marks = {"annotations": {MOUNTED_AT: where}}
        there.server.put(path, {"metadata": marks, "spec": {"accessModes": ["ReadOnlyMany"]}})
    there.begin()
    told = there.snapshotter.published("alice").policy.shared_data
    assert (
        told
        == there.snapshotter.policy_of("alice").shared_data
        == (SharedClaim("images", "/mnt/images"),)
    )
    assert there.snapshotter.policy_of("bob").shared_data == ()
