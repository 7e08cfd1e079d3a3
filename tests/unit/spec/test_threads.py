"""Types that several threads convert to for the first time."""

from __future__ import annotations

import ast
import subprocess
import sys

from support.project import ROOT

CONVERSION = ROOT / "tfcluster_magic" / "spec" / "conversion.py"
CONVERTED_AT_ONCE = """
from __future__ import annotations
import sys, threading
from tfcluster_magic.spec import Model, conversion

inspecting, converted = threading.Event(), threading.Event()

def number():
    inspecting.set()
    converted.wait(1)  # the second thread converts now, unless it has to wait for this one
    return int

class Inner(Model):
    count: number()

class Outer(Model):
    inner: Inner

def convert():
    conversion.convert({"inner": {"count": 1}}, Outer)

first = threading.Thread(target=convert)
first.start()
inspecting.wait()
convert()
converted.set()
first.join()
"""


def test_a_type_is_inspected_by_one_thread() -> None:
    """A process does not crash if a thread uses a type that another thread inspects."""
    words = [sys.executable, "-c", CONVERTED_AT_ONCE]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_every_module_converts_through_conversion() -> None:
    """No other module gives msgspec a type, because msgspec would inspect it in any thread."""
    for path in sorted((ROOT / "tfcluster_magic").rglob("*.py")):
        if path == CONVERSION:
            continue
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call):
                name = ast.unparse(call.func)
                typed = name == "msgspec.json.decode" and call.keywords
                unsafe = typed or name in ("msgspec.convert", "msgspec.json.Decoder")
                assert not unsafe, f"{path}:{call.lineno}: use conversion.py instead of {name}"
