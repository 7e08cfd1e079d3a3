"""Names of clusters, runs and tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfcluster_magic.spec import TaskType
from tfcluster_magic.spec.names import derive, is_valid, parse_ref, parse_task, run_name, task_name


@given(st.text(max_size=80))
def test_any_text_gives_a_valid_name(text: str) -> None:
    """For a program with any name, the derived name of the cluster is valid."""
    assert is_valid(derive(text))


def test_a_derived_name_stays_recognisable() -> None:
    """A derived name keeps the letters and digits of the file's name."""
    assert derive("My_Train 2") == "my-train2"
    assert derive("42") == "cluster"


@given(st.text(max_size=80).map(derive), st.integers(1, 10**6))
def test_a_run_reads_back_as_its_cluster_and_number(cluster: str, run: int) -> None:
    """`digits-2` can only be read as run 2 of digits."""
    assert parse_ref(run_name(cluster, run)) == (cluster, run)
    assert parse_ref(cluster) == (cluster, None)


@pytest.mark.parametrize("ref", ["digits-" + "9" * 5000, "digits-\u0663", "digits-1\n", "-1"])
def test_a_ref_that_is_no_run(ref: str) -> None:
    """If a reference ends in a number that no run can have, the number belongs to the cluster's
    name.
    """
    assert parse_ref(ref) == (ref, None)


@given(st.sampled_from(TaskType), st.integers(0, 999))
def test_a_task_reads_back(task_type: TaskType, index: int) -> None:
    """`worker-3` is read as worker 3."""
    assert parse_task(task_name(task_type, index)) == (task_type, index)
