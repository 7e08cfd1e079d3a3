"""Problem responses of the server and the console."""

from __future__ import annotations

import msgspec

from tfcluster_magic.errors import PreflightRefused
from tfcluster_magic.i18n import language
from tfcluster_magic.quota.preflight import too_many_tasks
from tfcluster_magic.spec import TaskType
from tfcluster_magic.web import problem


def test_a_problem_is_text_in_the_readers_language() -> None:
    """In the JSON of a refusal, the field, the value and the allowed values are texts in the
    reader's language.
    """
    refused = PreflightRefused([too_many_tasks({TaskType.WORKER: 8}, 3)])
    for tag, value, allowed in (
        ("en", "8 tasks", "at most 3 tasks run here: use --workers 3"),
        ("zh_CN", "8 个任务", "--workers 3"),
    ):
        with language(tag):
            encoded = msgspec.json.encode(problem(refused))
        (told,) = msgspec.json.decode(encoded)["problems"]
        assert (told["field"], told["value"]) == ("replicas", value)
        assert allowed in told["allowed"]
