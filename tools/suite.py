"""Run one suite of tests. In CI, failed tests run again, to distinguish broken tests from unsteady
ones.

  python tools/suite.py tests/ui -n 3 --dist worksteal

The arguments are pytest's. A `-k` or `-m` that selects no test of this suite is not a failure. If
CI=true, failed tests of up to `AT_MOST` files run a second time, alone, and browsers then record
traces. If the tests of a file may depend on each other (`--dist loadfile`) and fail again, the
whole file runs once more. A test that fails again is broken, and the suite fails. A test that
passes the second time is listed as unsteady at the end, with its first failure above: it is a bug
of the product or of the test (docs/how-to/develop.md). Outside CI every failure counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
AT_MOST = 3
"""If more files than this have failures, nothing runs again. Files are counted, not tests, because
one fixture may fail all tests of a file.
"""
TRACED = "TFC_TRACED_PAGES"
"""The variable that makes tests/support/ui record traces, which cost a sixth of a page's time."""
TESTS_FAILED, NONE_CHOSEN = 1, 5  # https://docs.pytest.org/en/stable/reference/exit-codes.html


def main(words: list[str], folder: Path = HERE) -> int:
    """Run the suite of `words` in `folder`; return the exit code for make."""
    suite = words[0].replace("/", "-") if words and not words[0].startswith("-") else "tests"
    memory = folder / ".pytest_cache" / suite  # one for each suite: suites may run at the same time
    pytest = [sys.executable, "-m", "pytest", "-o", f"cache_dir={memory}"]
    memory /= "v/cache/lastfailed"
    memory.unlink(missing_ok=True)  # the file may list failures of an earlier run
    code = subprocess.call([*pytest, *words], cwd=folder)
    if code == NONE_CHOSEN and any(word.startswith(("-k", "-m")) for word in words):
        return 0
    failed = sorted(json.loads(memory.read_text())) if memory.exists() else []
    files = {name.partition("::")[0] for name in failed}
    if code != TESTS_FAILED or os.environ.get("CI") != "true" or not 0 < len(files) <= AT_MOST:
        return code
    pytest += [word for word in words if word == "--long"]
    print(f"\n{len(failed)} failed; each runs once more, alone:", *failed, sep="\n  ", flush=True)
    traced = {**os.environ, TRACED: "1"}
    code = subprocess.call([*pytest, *failed], cwd=folder, env=traced)
    if code and "loadfile" in words:
        print("\nand with their files:", *sorted(files), sep="\n  ", flush=True)
        code = subprocess.call([*pytest, *sorted(files)], cwd=folder, env=traced)
    if code:
        return code
    print("UNSTEADY (failed, then passed; each is a bug to mend):", *failed, sep="\n  ", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
