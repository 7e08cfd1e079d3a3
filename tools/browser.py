"""The browser of tests/ui: the machine's Chromium, and a font with Chinese characters.

The script prints the path of a Chromium. If none is installed and root runs the script on Debian or
Ubuntu, the script installs one; otherwise it prints what to do. It never downloads a browser
outside the package manager, because the system's browser gets security updates. Standard library
only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
BROWSER = ("chromium", "fonts-dejavu-core")  # 124 MB
CHINESE = "fonts-wqy-microhei"  # 1.6 MB; without it screenshots show boxes for Chinese


def find() -> str | None:
    """Return the Chromium to use: $CHROMIUM, else the first on PATH."""
    if given := os.environ.get("CHROMIUM"):
        return given if os.access(given, os.X_OK) else None
    found = next(filter(None, map(shutil.which, NAMES)), None)
    return found or (str(MAC) if MAC.exists() else None)


def main() -> int:
    """Print the path of a Chromium; install one if needed."""
    if given := os.environ.get("CHROMIUM"):
        if find() is None:
            sys.exit(f"CHROMIUM={given}: there is no such program. Unset it, or correct it.")
    elif missing := [*(() if find() else BROWSER), *(() if shows_chinese() else [CHINESE])]:
        apt = shutil.which("apt-get")
        if apt and os.geteuid() == 0:
            install(apt, missing)
        elif find() is None:
            sys.exit(advice(missing, has_apt=apt is not None))
    print(find())
    return 0


def shows_chinese() -> bool:
    """Return whether a font has Chinese characters; also True if this is unknown."""
    lister = shutil.which("fc-list")
    if lister is None:
        return shutil.which("apt-get") is None
    listed = subprocess.run([lister, ":lang=zh-cn"], capture_output=True, check=False)
    return bool(listed.stdout.strip())


def install(apt: str, packages: list[str]) -> None:
    """Install Debian packages after updating the package list."""
    print(f"installing {' '.join(packages)} for the browser tests ...", file=sys.stderr, flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (
        ["update", "-qq"],
        ["install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(
            [apt, *words],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            told = "\n".join(done.stdout.splitlines()[-5:])
            failed = f"{told}\napt-get {words[0]} failed; {advice(packages, has_apt=True)}"
            if find() is None:
                sys.exit(failed)
            print(failed, file=sys.stderr)  # continue: only screenshots need the font
            return


def advice(packages: list[str], *, has_apt: bool) -> str:
    """Return a text that says how to install these packages, or to name another Chromium."""
    how = (
        f"run: sudo apt-get install {' '.join(packages)}"
        if has_apt
        else "install Chromium or Google Chrome"
    )
    return (
        f"the browser tests need Chromium: {how}\nor name one: CHROMIUM=/path/to/chrome make test"
    )


if __name__ == "__main__":
    sys.exit(main())
