"""Run one suite of tests; on a build machine a test that failed is told apart: broken or unsteady.

    python tools/suite.py tests/ui -n 3 --dist worksteal

The words are pytest's. A choice (`-k`) that leaves nothing of this suite is no failure. Where
CI=true, failed tests of up to `AT_MOST` files run a second time, alone, and now browsers keep
traces of their pages; where the tests of a file belong together (`--dist loadfile`), with their
whole files if need be. One that fails again is broken, and so is the suite; one that passes then is
named as unsteady at the end, with its first failure above. Such a test is a bug of the product or
of the test (docs/how-to/develop.md). Elsewhere a failure is a failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
AT_MOST = 3
"""Files with failures; in more than these it is no accident. One fixture may fail all of a file."""
TRACED = "TFC_TRACED_PAGES"
"""The variable by which tests/support/ui knows it: a trace takes a sixth of what a page does."""
TESTS_FAILED, NONE_CHOSEN = 1, 5  # https://docs.pytest.org/en/stable/reference/exit-codes.html


def main(words: list[str], folder: Path = HERE) -> int:
    """Run the suite of `words` in `folder`; the exit code for make."""
    suite = words[0].replace("/", "-") if words and not words[0].startswith("-") else "tests"
    memory = folder / ".pytest_cache" / suite  # of its own: suites may run at the same time
    pytest = [sys.executable, "-m", "pytest", "-o", f"cache_dir={memory}"]
    memory /= "v/cache/lastfailed"
    memory.unlink(missing_ok=True)  # of an earlier time
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
