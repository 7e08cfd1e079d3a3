"""Blocking calls for the server's loop, each in a thread of its own with a timeout.

The loop never waits for a backend, and a caller gets an answer or an error within `within` seconds.
A thread cannot be killed: if its backend hangs, it counts against the limit until it returns. So a
dead backend cannot fill the process with threads, and a hanging call is not repeated. Slow calls
have their own limit, so that many launches do not delay reading.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from ..errors import BackendUnavailable
from ..i18n import _

T = TypeVar("T")

READ_WITHIN = 2.5
"""Timeout in seconds of calls that only read, or that request a stop."""
LAUNCH_WITHIN = 120.0
"""Timeout in seconds of a launch, which may download its program."""
MOST_AT_ONCE = 16


class Worker:
    """A runner of blocking calls, which runs them in threads outside the event loop. Call its
    methods only on the event loop.
    """

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self._quick, self._long = _ThreadLimit(most), _ThreadLimit(most)

    async def call(
        self, function: Callable[..., T], *args: Any, within: float = READ_WITHIN, **words: Any
    ) -> T:
        """Return the result of `function(*args, **words)`, or raise its error.

        Raises:
            BackendUnavailable: `function` did not return within `within` seconds, or too many calls
                already wait for the backend.
        """
        room = self._long if within > READ_WITHIN else self._quick
        return await room.call(within, function, args, words)


class _ThreadLimit:
    """A limited number of threads, and the calls that wait for one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way: set[asyncio.Future[Any]] = set()
        self._late: dict[Hashable, set[asyncio.Future[Any]]] = {}

    async def call(
        self,
        within: float,
        function: Callable[..., T],
        args: tuple[Any, ...],
        words: dict[str, Any],
    ) -> T:
        """See `Worker.call`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        question = _call_key(function, args, words)
        await self._free(question, deadline)
        answer = self._begin(loop, function, args, words)
        await asyncio.wait([answer], timeout=max(0.0, deadline - loop.time()))
        if answer.done():
            return answer.result()
        self._is_late(object() if question is None else question, answer)
        raise _no_answer(within)

    def _is_late(self, key: Hashable, answer: asyncio.Future[Any]) -> None:
        self._late.setdefault(key, set()).add(answer)

        def came(_: object) -> None:
            self._late[key].discard(answer)
            if not self._late[key]:
                del self._late[key]

        answer.add_done_callback(came)

    async def _free(self, question: Hashable | None, deadline: float) -> None:
        """Wait until a thread is free, and until no call that is equal to this one (`question`)
        still hangs.
        """
        began = asyncio.get_running_loop().time()
        while True:
            late = None if question is None else self._late.get(question)
            if late is not None:
                awaited = set(late)
            elif sum(map(len, self._late.values())) >= self._most:
                raise _no_answer(0)
            elif len(self._under_way) >= self._most:
                awaited = set(self._under_way)
            else:
                return
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise _no_answer(deadline - began)
            await asyncio.wait(awaited, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _begin(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[..., T],
        args: tuple[Any, ...],
        words: dict[str, Any],
    ) -> asyncio.Future[T]:
        answer: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()  # so that messages are in the request's language

        def work() -> None:
            try:
                settle: Callable[[], None]
                result = context.run(function, *args, **words)
                settle = lambda: answer.set_result(result)  # noqa: E731
            except BaseException as raised:  # noqa: BLE001 - the caller gets the error
                error = raised
                settle = lambda: answer.set_exception(error)  # noqa: E731
            try:
                loop.call_soon_threadsafe(settle)
            except RuntimeError:
                return  # the server has ended

        name = getattr(function, "__name__", "call")
        threading.Thread(target=work, name=f"tfcluster-{name}", daemon=True).start()
        self._under_way.add(answer)
        answer.add_done_callback(self._ended)
        return answer

    def _ended(self, answer: asyncio.Future[Any]) -> None:
        self._under_way.discard(answer)
        # retrieve the error, because asyncio logs errors that nobody has retrieved
        answer.exception()


def _call_key(
    function: Callable[..., Any], args: tuple[Any, ...], words: dict[str, Any]
) -> Hashable | None:
    """Return a key that is equal for equal calls; None if the arguments are not hashable."""
    question = (function, args, tuple(sorted(words.items())))
    try:
        hash(question)
    except TypeError:
        return None
    return question


def _no_answer(seconds: float) -> BackendUnavailable:
    if not seconds:
        return BackendUnavailable(
            _(
                "the backend does not answer. Clusters go on, and this view is updated "
                "when it answers again"
            )
        )
    return BackendUnavailable(
        _(
            "the backend did not answer within {seconds:g} s. Clusters go on, and "
            "this view is updated when it answers again"
        ).format(seconds=seconds)
    )
