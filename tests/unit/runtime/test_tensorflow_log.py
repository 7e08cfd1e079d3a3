"""TensorFlow's own log lines, in shells and in JupyterLab."""

from __future__ import annotations

import json
import re

import pytest
from support.project import DATA, ROOT

from tfcluster_magic.errors import TensorFlowLog, tensorflow_log

TWIN = ROOT / "labextension" / "src" / "logs" / "noise.ts"
CASES: dict[str, list[str]] = json.loads((DATA / "tensorflow_log.json").read_text("utf-8"))
"""Lines of one task, each marked as hidden or shown; labextension/test/noise.test.ts has the same
cases.
"""


def test_the_page_hides_the_same() -> None:
    """JupyterLab hides the same lines as a shell."""
    assert tuple(re.findall(r"^  /(\^.*)/[,;]?$", TWIN.read_text(), re.MULTILINE)) == (
        *tensorflow_log.FIRST_LINES,
        tensorflow_log.ANNOUNCES,
        tensorflow_log.FIELD,
        tensorflow_log.SENTENCES,
    )


@pytest.mark.parametrize("lines", CASES.values(), ids=CASES)
def test_a_message_is_hidden_with_all_of_its_lines(lines: list[str]) -> None:
    """A protobuf and its sentences are hidden directly after a line that announces them, and only
    there.
    """
    log = TensorFlowLog()
    texts = [line.partition("| ")[2] for line in lines]
    assert [f"{'hidden' if log.hides(text) else 'shown '}| {text}" for text in texts] == lines


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
    assert TensorFlowLog().hides(line)


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
    assert not TensorFlowLog().hides(line)
