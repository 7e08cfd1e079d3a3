"""Logs of a run over HTTP: lines, tasks, the last lines, a text file, and refusals."""

from __future__ import annotations

import time

from support.server.calls import Api, Launch, assert_problem
from support.server.log_items import items, lines

from tfcluster_magic.server.log_streams import MOST_LINES


async def test_all_that_was_printed(api: Api, ended: Launch) -> None:
    """The lines of every task arrive completely and in order, in batches of at most 500 lines; then
    the end of the log arrives.
    """
    await ended("for i in range(1234): print('line', i)", workers=2)
    found = items(await api("GET", "clusters/digits/logs"))
    assert found[-1] == {"end": True}
    assert max(len(item.get("lines", ())) for item in found) == MOST_LINES
    for task in ("worker-0", "worker-1"):
        mine = [text for name, text in lines(found) if name == task]
        assert mine == [f"line {i}" for i in range(1234)]


async def test_some_tasks_and_the_last_lines(api: Api, ended: Launch) -> None:
    """A query can select single tasks, and the last lines of each task."""
    await ended("for i in range(9): print(i)", workers=3)
    found = items(await api("GET", "clusters/digits/logs?task=worker-1&tail=2"))
    assert lines(found) == [("worker-1", "7"), ("worker-1", "8")]
    assert lines(items(await api("GET", "clusters/digits/logs?tail=0"))) == []
    assert_problem(await api("GET", "clusters/digits/logs?task=ps-0"), 404, "worker-0")


async def test_a_query_that_is_wrong(api: Api, ended: Launch) -> None:
    """A wrong query is refused with the values that it may have."""
    await ended()
    for query in ("tail=-1", "tail=x", "tail=1e3", "follow=yes", "download=2"):
        answer = await api("GET", f"clusters/digits/logs?{query}")
        assert_problem(answer, 422, query.partition("=")[0])


async def test_what_programs_print_is_only_text(api: Api, ended: Launch) -> None:
    """Control characters, markup, NUL and invalid UTF-8 arrive as text in JSON."""
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
    """A download is text with each line's task, and has the run's name."""
    await ended("print('hello')", workers=2)
    answer = await api("GET", "clusters/digits/logs?download=1&follow=1")
    assert answer.content_type.startswith("text/plain")
    assert sorted(answer.text.splitlines()) == ["worker-0 | hello", "worker-1 | hello"]
    assert answer.raw.headers["Content-Disposition"] == 'attachment; filename="digits-1.log"'


TURNS = r"""
import os, time
me, turn = int(os.environ["TFCLUSTER_TASK"][-1]), 0
folder = os.environ["TFCLUSTER_OUTPUT_DIR"]
for turn in range(6):
    if turn % 2 == me:
        time.sleep(0.05)
        print("turn", turn, flush=True)
        time.sleep(0.05)
        open(f"{folder}/turn-{turn}", "w").close()
    while not os.path.exists(f"{folder}/turn-{turn}"):
        time.sleep(0.02)
"""


async def test_lines_of_tasks_stand_in_the_order_of_time(api: Api, ended: Launch) -> None:
    """Lines that tasks print in turns arrive in the order of their times, with these times, also if
    only the last lines are requested.
    """
    before = time.time() * 1000
    await ended(TURNS, workers=2)
    found = items(await api("GET", "clusters/digits/logs"))
    assert lines(found) == [(f"worker-{n % 2}", f"turn {n}") for n in range(6)]
    times = [line[2] for item in found for line in item.get("lines", ())]
    assert before <= times[0]
    assert times == sorted(times)
    assert times[-1] <= time.time() * 1000
    assert times[-1] - times[0] >= 500


async def test_the_whole_log_is_searched(api: Api, ended: Launch) -> None:
    """A search returns every line that contains the text. With the number of a line, a request gets
    the lines around it.
    """
    await ended("for i in range(3000): print('\\x1b[1mStep\\x1b[0m', i)", workers=2)
    found = items(await api("GET", "clusters/digits/logs?search=step 299"))
    matches = [line for item in found for line in item.get("lines", ())]
    expected = [299, *range(2990, 3000)]
    for task in ("worker-0", "worker-1"):
        assert [line[3] for line in matches if line[0] == task] == expected
    nothing = items(await api("GET", "clusters/digits/logs?search=step 299&case=1"))
    assert lines(nothing) == []
    asked = "clusters/digits/logs?task=worker-1&around=worker-1:299&lines=4"
    near = items(await api("GET", asked))
    assert [line[3] for item in near for line in item.get("lines", ())] == [297, 298, 299, 300]
    for lines_, numbers in ((1, [299]), (2, [298, 299]), (3, [298, 299, 300])):
        asked = f"clusters/digits/logs?task=worker-1&around=worker-1:299&lines={lines_}"
        near = items(await api("GET", asked))
        assert [line[3] for item in near for line in item.get("lines", ())] == numbers
    gone = items(await api("GET", "clusters/digits/logs?around=worker-1:3000"))
    assert lines(gone) == []


async def test_a_part_of_a_log_that_is_asked_in_a_wrong_way(api: Api, ended: Launch) -> None:
    """A request for an invalid part of a log is refused; the response never has the whole log or
    another part.
    """
    await ended("print('hello')")
    for query, problem in {
        "around=worker-1:x": "around",
        "around=worker-1": "around",
        "around=:3": "around",
        "around=worker-1:3&tail=5": "tail",
        "search=step&tail=5": "tail",
        "search=step&most=few": "most",
        "search=step&before=now": "before",
    }.items():
        assert_problem(await api("GET", f"clusters/digits/logs?{query}"), 422, problem)


async def test_a_search_ends_where_the_reader_knows_the_rest(api: Api, ended: Launch) -> None:
    """A search ends after the requested number of matches, or at the first line that was printed
    after a given time. It says how many lines of each task it has read.
    """
    noise = "2026-11-21 16:36:34.123456: I tensorflow/core/cpu_feature_guard.cc:210] turn"
    dump = [f"{noise} goo.gle/debugstr  ", "turn: 1", ""]
    await ended(TURNS + f"\nif me == 0: print({noise!r}, *{dump!r}, sep='\\n')", workers=2)
    whole = items(await api("GET", "clusters/digits/logs"))
    times = [line[2] for item in whole for line in item.get("lines", ())]

    async def found(query: str) -> tuple[list[str], dict[str, int]]:
        answer = items(await api("GET", f"clusters/digits/logs?search=turn{query}"))
        return [text for _task, text in lines(answer)], answer[-1]["printed"]

    every = [f"turn {n}" for n in range(6)]
    assert await found("") == ([*every, noise, *dump[:2]], {"worker-0": 7, "worker-1": 3})
    for regex in ("0", "1"):
        assert (await found(f"&hide_tensorflow_logs=1&regex={regex}"))[0] == every
    assert await found("&most=2") == (every[:2], {"worker-0": 1, "worker-1": 1})
    # the search continues until both tasks have reached the time of `before`
    assert await found(f"&before={times[2]}") == (every[:2], {"worker-0": 1, "worker-1": 1})
