"""TensorFlow's own log lines, in shells and in JupyterLab."""

from __future__ import annotations

import re

import pytest
from support.project import ROOT

from tfcluster_magic.errors import TENSORFLOW_LOG_PATTERNS, is_tensorflow_log

TWIN = ROOT / "labextension" / "src" / "logs" / "noise.ts"


def test_the_page_hides_the_same() -> None:
    """JupyterLab hides the same lines as a shell."""
    assert (
        tuple(re.findall(r"^  /(\^.*)/,?$", TWIN.read_text(), re.MULTILINE))
        == TENSORFLOW_LOG_PATTERNS
    )


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-21 16:36:34.123456: W tensorflow/core/framework/op_kernel.cc:1830] x",
        "I0000 00:00:1732207594.123456    4711 cpu_device.cc:88] x",
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    ],
)
def test_what_its_code_in_c_says_is_a_remark(line: str) -> None:
    """Both forms of log lines of TensorFlow's C++ code are recognised, and also the lines that it
    prints before logging starts.
    """
    assert is_tensorflow_log(line)


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-21 16:36:34.123456: E tensorflow/core/framework/op_kernel.cc:1830] x",
        "F0000 00:00:1732207594.123456    4711 cpu_device.cc:88] x",
        "W1121 16:36:34.123456 140 train.py:12] from absl in a program",
        "2026-11-21 16:36:34.1: I core/master.cc:236] CreateSession still waiting for response",
        "I0000 00:00:17322075.1 4711 coordination_service.cc:9] Waiting for 1/2 tasks to connect.",
        "loss: I 3",
        "",
    ],
)
def test_errors_and_the_programs_words_are_none(line: str) -> None:
    """Lines that may matter, such as lines that name a missing task, are never hidden."""
    assert not is_tensorflow_log(line)
