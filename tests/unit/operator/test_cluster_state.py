"""The parts of a run's record that the operator's caches keep."""

from __future__ import annotations

from typing import Any

from tfcluster_magic.operator.cluster_state import REFUSED, trim_run


def written(generation: int, phase: str, text: str = "print(1)\n" * 1000) -> dict[str, Any]:
    """Return a hand-written record, whose program is `text`, with `phase` in its status."""
    head = {"name": "digits-1", "namespace": "ada", "uid": "1", "generation": generation}
    return {"metadata": head, "spec": {"program": {"inline": text}}, "status": {"phase": phase}}


def test_a_program_written_by_hand_is_read_once() -> None:
    """After a change of the status, the program's checksum is not computed again; after a change of
    the spec, it is. The program's text is not kept.
    """
    first = trim_run(written(1, "Starting"))
    again = trim_run(written(1, "Running"), first)
    assert again["status"] == {"phase": "Running"}
    assert again["spec"]["program"] is first["spec"]["program"]
    assert first["spec"]["program"]["sha256"]
    assert "print" not in str(first)
    other = trim_run(written(2, "Running", "print(2)\n"), again)
    assert other["spec"]["program"]["sha256"] != first["spec"]["program"]["sha256"]


def test_a_record_of_an_earlier_release_keeps_its_program() -> None:
    """Program text larger than a launch allows is accepted if the record has a status."""
    kept = trim_run(written(1, "Running", "print('a')\n" * 5900))
    assert kept["spec"]["program"]["sha256"]


def test_a_refusal_of_many_problems_names_the_first_and_counts_the_rest() -> None:
    """A record can have thousands of problems; its status lists the first and counts the rest, in
    every language.
    """
    found = written(1, "")
    found["spec"]["env"] = {f"TFCLUSTER_{n}": "x" for n in range(200)}
    del found["status"]
    lines = str(trim_run(found)[REFUSED]).splitlines()
    assert lines[0] == "the TFCluster digits-1 is invalid for 200 reasons:"
    assert "TFCLUSTER_0" in lines[1]
    assert lines[-1] == f"  - {200 - (len(lines) - 2)} more"
    assert len(lines) > 10
