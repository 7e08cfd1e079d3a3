"""Logs of a run over HTTP: lines, tasks, the last ones, a file; and what is refused."""

from __future__ import annotations

from support.server.calls import Api, Launch, assert_problem
from support.server.log_items import items, lines

from tfcluster_magic.server.log_streams import MOST_LINES


async def test_all_that_was_printed(api: Api, ended: Launch) -> None:
    """The lines of every task come in batches of at most 500, whole and in order, then the end."""
    await ended("for i in range(1234): print('line', i)", workers=2)
    found = items(await api("GET", "clusters/digits/logs"))
    assert found[-1] == {"end": True}
    assert max(len(item.get("lines", ())) for item in found) == MOST_LINES
    for task in ("worker-0", "worker-1"):
        mine = [text for name, text in lines(found) if name == task]
        assert mine == [f"line {i}" for i in range(1234)]


async def test_some_tasks_and_the_last_lines(api: Api, ended: Launch) -> None:
    """Single tasks can be asked for, and the last lines of each."""
    await ended("for i in range(9): print(i)", workers=3)
    found = items(await api("GET", "clusters/digits/logs?task=worker-1&tail=2"))
    assert lines(found) == [("worker-1", "7"), ("worker-1", "8")]
    assert lines(items(await api("GET", "clusters/digits/logs?tail=0"))) == []
    assert_problem(await api("GET", "clusters/digits/logs?task=ps-0"), 404, "worker-0")


async def test_a_query_that_is_wrong(api: Api, ended: Launch) -> None:
    """What a query may say is named."""
    await ended()
    for query in ("tail=-1", "tail=x", "tail=1e3", "follow=yes", "download=2"):
        answer = await api("GET", f"clusters/digits/logs?{query}")
        assert_problem(answer, 422, query.partition("=")[0])


async def test_what_programs_print_is_only_text(api: Api, ended: Launch) -> None:
    """Control characters, markup, NUL and bytes that are no UTF-8 arrive as text in JSON."""
    text = r"""
import sys
sys.stdout.buffer.write(b"<script>alert(1)</script>\x1b[31m\x00\xff\xe2\x80\xa8 \"}\n")
"""
    await ended(text)
    answer = await api("GET", "clusters/digits/logs")
    ((_, line),) = lines(items(answer))
    assert line == '<script>alert(1)</script>\x1b[31m\x00\ufffd\u2028 "}'
    assert answer.raw.headers["X-Content-Type-Options"] == "nosniff"


async def test_as_a_text_file(api: Api, ended: Launch) -> None:
    """A download is text with each line's task, under the run's name."""
    await ended("print('hello')", workers=2)
    answer = await api("GET", "clusters/digits/logs?download=1&follow=1")
    assert answer.content_type.startswith("text/plain")
    assert answer.text == "worker-0 | hello\nworker-1 | hello\n"
    assert answer.raw.headers["Content-Disposition"] == 'attachment; filename="digits-1.log"'
