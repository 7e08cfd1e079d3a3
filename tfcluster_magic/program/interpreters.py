"""Search for modules by another Python interpreter.

Each request starts one short process with a time limit, outside of the user's working folder.
Answers are cached briefly, so that a form can ask while a user types. Nothing is imported: a module
counts as found if its files exist.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..i18n import _

CACHE_SECONDS, CACHE_SECONDS_OF_FAILURE = 60.0, 5.0
"""A pair: the seconds for which an answer is cached, and those for which a failure is cached. Both
are short, because users may install a missing module.
"""
_TIMEOUT = 10.0
_MARK = "tfcluster-modules:"
_PROBE = f"""
import importlib.util, sys
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
print({_MARK!r}, *filter(there, sys.argv[1:]))
"""


@dataclass
class Modules:
    """The answer of a Python interpreter: the modules `asked` for, and those of them that it
    `found`. `trouble` says why there is no answer; empty if there is one.
    """

    trouble: str = ""
    asked: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)


_known: dict[tuple[str, float], tuple[float, Modules]] = {}


def find_modules(
    python: str,
    names: Iterable[str],
    environ: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Modules:
    """Return which of the top-level modules `names` the Python at this path finds.

    Args:
        python: the path of the interpreter.
        names: names of modules without dots.
        environ: the environment of the interpreter; this process's own if None.
        clock: returns seconds; for tests.
    """
    wanted = set(names)
    try:
        key = (python, os.stat(python).st_mtime)
    except OSError as error:
        return Modules(trouble=error.strerror or str(error))
    until, known = _known.get(key, (0.0, Modules()))
    if clock() >= until:
        known = Modules()
    if known.trouble or wanted <= known.asked:
        return known
    answer = _ask(python, sorted(wanted | known.asked), environ)
    complete = not answer.trouble and wanted <= answer.found
    kept = CACHE_SECONDS if complete else CACHE_SECONDS_OF_FAILURE
    _known[key] = (clock() + kept, answer)
    return answer


def _ask(python: str, names: list[str], environ: Mapping[str, str] | None) -> Modules:
    try:
        done = subprocess.run(
            [python, "-c", _PROBE, *names],
            env=None if environ is None else dict(environ),
            # with `-c`, Python also finds modules in the working directory, so use one without
            # modules
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Modules(_("it did not answer within {seconds:g} s").format(seconds=_TIMEOUT))
    except OSError as error:
        return Modules(error.strerror or str(error))
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode or not answers:
        last = done.stderr.strip().splitlines()[-1:]
        return Modules(last[0] if last else f"exit {done.returncode}")
    return Modules(asked=set(names), found=set(answers[-1].removeprefix(_MARK).split()))
