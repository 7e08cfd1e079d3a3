"""The language of messages: how it is selected, and messages in Chinese."""

# ruff: noqa: RUF001 - Chinese punctuation is what is looked for
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.translated_commands import ROOT, VARIABLES, here, said

from tfcluster_magic import i18n
from tfcluster_magic.output.text import fold, table, width

__all__ = ["here"]  # a fixture used by the tests below


@pytest.fixture
def speak(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets the given environment variables for languages, and removes the
    others.
    """

    def speak(**variables: str) -> None:
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return speak


# -- which language --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({}, "en"),
        ({"LANG": "C"}, "en"),
        ({"LANG": "POSIX"}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh_CN"),
        ({"LANG": "zh_SG"}, "zh_CN"),
        ({"LANG": "zh"}, "zh_CN"),
        ({"LANG": "zh_TW.UTF-8"}, "en"),
        ({"LANG": "fr_FR.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, "zh_CN"),
        ({"LC_MESSAGES": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "en_US.UTF-8", "LANGUAGE": "zh_CN"}, "zh_CN"),
        ({"LANG": "en_US.UTF-8", "LANGUAGE": "fr:zh_CN:en"}, "zh_CN"),
        ({"LANG": "zh_CN.UTF-8", "LANGUAGE": "en:zh_CN"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "TFCLUSTER_LANGUAGE": "en"}, "en"),
        ({"LANG": "en_US.UTF-8", "TFCLUSTER_LANGUAGE": "zh-CN"}, "zh_CN"),
        ({"TFCLUSTER_LANGUAGE": "zh-Hans"}, "zh_CN"),
        ({"TFCLUSTER_LANGUAGE": "../../../tmp"}, "en"),
    ],
)
def test_the_environment_chooses_by_the_rules_of_gettext(
    variables: dict[str, str], language: str, speak: Callable[..., None]
) -> None:
    """The first variable that is set counts, in the order TFCLUSTER_LANGUAGE, LANGUAGE, LC_ALL,
    LC_MESSAGES, LANG.
    """
    speak(**variables)

    assert i18n.current_language() == language


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh_CN"),
        ("en-US,en;q=0.9,zh-CN;q=0.8", "en"),
        ("fr,zh;q=0.5,en;q=0.1", "zh_CN"),
        ("en;q=0.1, zh-CN", "zh_CN"),
        ("zh-CN;q=0, en", "en"),
        ("", "en"),
        ("*", "en"),
        (";;q=x,,", "en"),
    ],
)
def test_a_request_chooses_with_accept_language(
    header: str, language: str, speak: Callable[..., None]
) -> None:
    """A browser's weighted languages take precedence over the server's environment."""
    speak()

    with i18n.language(i18n.accepted_languages(header)):
        assert i18n.current_language() == language
    assert i18n.current_language() == "en"


def test_english_costs_nothing() -> None:
    """Without a request for another language, neither a catalog nor gettext is loaded."""
    look = (
        "import sys; from tfcluster_magic import i18n; i18n._('x'); print('gettext' in sys.modules)"
    )
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}

    done = subprocess.run(
        [sys.executable, "-c", look],
        env=clean,
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )

    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("launched_in", ["zh_CN", "en"])
def test_a_reason_is_told_in_the_language_of_who_reads_it(here: Path, launched_in: str) -> None:
    """A record has codes and English text, so each reader sees messages in their own language."""
    said(here, launched_in, "launch", "fail.py", "--workers", "2", "--ps", "0", "--wait")

    assert "失败，退出码为 1：ValueError: broken" in said(here, "zh_CN", "status", "fail")
    assert "failed with exit code 1: ValueError: broken" in said(here, "en", "status", "fail")
    stored = json.loads(said(here, "zh_CN", "status", "fail", "-o", "json"))["status"]
    assert "failed with exit code 1: ValueError: broken" in stored["message"]
    assert stored["messages"][0]["code"] == "ExitCode"
    assert stored["messages"][0]["params"]["code"] == 1


# -- in Chinese ------------------------------------------------------------------------------------


def test_a_launch_its_failure_and_its_status_are_told_in_chinese(here: Path) -> None:
    """With a Chinese locale, the output of `launch --wait`, the table of tasks in `status`, and
    `list` are Chinese.
    """
    launched = said(here, "zh_CN", "launch", "fail.py", "--workers", "2", "--ps", "0", "--wait")
    status = said(here, "zh_CN", "status", "fail")
    listed = said(here, "zh_CN", "list")

    assert "查看任务的输出" in launched
    assert "worker-0 失败，退出码为 1：ValueError: broken" in launched.replace(
        "worker-1", "worker-0"
    )
    assert "的输出：`tfcluster logs fail-1 worker-" in launched
    assert status.split("\n\n")[1].splitlines()[0].split() == ["任务", "状态", "重启次数", "说明"]
    assert listed.splitlines()[0].split() == ["名称", "模式", "阶段", "就绪", "时长", "原因"]


def test_chinese_tables_stand_in_columns(here: Path) -> None:
    """A column of a table begins at the same place in every line; a wide character counts as
    two.
    """
    said(here, "zh_CN", "launch", "fail.py", "--workers", "2", "--ps", "0", "--wait")
    head, first, second = said(here, "zh_CN", "status", "fail").split("\n\n")[1].splitlines()

    begins = [
        {column(line, word) for line, word in zip((head, first, second), words, strict=True)}
        for words in (("状态", "Failed", "Failed"),)
    ]

    assert len(begins[0]) == 1
    assert table(("名称", "x"), [("ab", "1"), ("中文字", "2")]).splitlines() == [
        "名称    x",
        "ab      1",
        "中文字  2",
    ]


def test_a_refusal_is_told_in_chinese_with_its_words_untouched(here: Path) -> None:
    """In a Chinese refusal, options, values and commands stay as they are typed."""
    told = said(here, "zh_CN", "launch", "fail.py", "--memory", "much", "--workers", "x")

    assert "启动被拒绝，原因有 2 个：" in told
    assert "--memory：值为 'much'；请写带 Ki、Mi、Gi 或 Ti 的数字" in told


def test_a_terminal_without_chinese_characters_is_spoken_to_in_english(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal whose encoding lacks Chinese characters gets English instead of question marks."""
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")

    assert said(here, "zh_CN", "list").startswith("No runs yet.")


def test_long_chinese_lines_are_folded_to_the_terminal() -> None:
    """Wide characters count twice, and no line begins with a comma or a full stop."""
    lines = fold("程序自己的参数写在末尾，" * 8 + "tfcluster launch。", 40)

    assert all(width(line) <= 42 for line in lines)
    assert "".join(lines).replace(" ", "") == ("程序自己的参数写在末尾，" * 8 + "tfclusterlaunch。")
    assert not any(line[0] in "，。" for line in lines)


# -- nothing is left out ---------------------------------------------------------------------------


def column(line: str, word: str) -> int:
    """Return the column of the terminal in which `word` begins."""
    assert word in line
    return width(line[: line.index(word)])
