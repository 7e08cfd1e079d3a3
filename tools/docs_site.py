"""Build docs/ as a site in build/docs: `python tools/docs_site.py`.

Sphinx and its theme have their own environment, build/docs-env, which is rebuilt when
requirements/docs.txt changes, so `make dev` stays small. Every Sphinx warning is an error,
including broken links. Standard library only.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "requirements" / "docs.txt"
ENVIRONMENT = ROOT / "build" / "docs-env"
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / "installed"
SITE = ROOT / "build" / "docs"


def main() -> int:
    """Build the site and return Sphinx's exit status."""
    install()
    sphinx = [str(PYTHON), "-m", "sphinx", "--fail-on-warning", "--keep-going", "--nitpicky"]
    where = ["-b", "html", "-d", str(SITE / "doctrees"), "docs", str(SITE / "html")]
    status = subprocess.run([*sphinx, "--quiet", *where], cwd=ROOT, check=False).returncode
    if status == 0:
        print(f"docs: {SITE.relative_to(ROOT)}/html/index.html")
    return status


def install() -> None:
    """Make the environment unless it matches requirements/docs.txt."""
    wanted = hashlib.sha256(PINS.read_bytes() + sys.version.encode()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    print("docs: 20 MB of packages to fetch, once", flush=True)
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    venv.create(ENVIRONMENT, with_pip=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "-r", str(PINS)], cwd=ROOT, check=True)
    STAMP.write_text(wanted)


if __name__ == "__main__":
    sys.exit(main())
