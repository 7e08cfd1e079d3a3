"""The JupyterLab extension in a wheel, an environment and images, and the cases in which it is
built.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from kubenode import images
from support.project import ROOT

import tfcluster_magic

SOURCES = ROOT / "labextension"
NAME = "tfcluster-labextension"
TOOL = ROOT / "tools" / "labextension.py"
LONGEST = 600  # maximum number of lines of a TypeScript file
Tool = Callable[..., subprocess.CompletedProcess[str]]


def copy(target: Path) -> Path:
    """Copy the files from which the wheel is built, with the extension as `make dev` built it."""
    made = shutil.ignore_patterns("__pycache__", "*.so", "node_modules", ".yarn", "lib")
    also = ("pyproject.toml", "setup.py", "tfcluster.py", "README.md", "LICENSE", "MANIFEST.in")
    for name in also:
        shutil.copy(ROOT / name, target)
    for name in ("jupyter-config", "labextension", "tfcluster_magic", "tools"):
        shutil.copytree(ROOT / name, target / name, ignore=made)
    return target


def node(folder: Path) -> tuple[dict[str, str], Path]:
    """Return environment variables in whose PATH Node is a script that fails, and the path of the
    file that this script writes when it is started.
    """
    folder.mkdir()
    mark = folder / "was-started"
    for name in ("node", "nodejs"):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho $0 $@ >> {mark}\nexit 1\n")
        program.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}, mark


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone with the built extension."""
    folder = copy(tmp_path_factory.mktemp("sources"))
    assert run_tool(folder, "current").returncode == 0, "the extension is not built: make dev"
    return folder


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of the clone `sources`, built with a Node that fails."""
    environment, mark = node(tmp_path_factory.mktemp("wheel") / "bin")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"]
    done = subprocess.run(
        build, cwd=sources, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert not mark.exists(), mark.read_text()
    return next((sources / "dist").iterdir())


def run_tool(clone: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the clone's tools/labextension.py."""
    return subprocess.run(
        [sys.executable, clone / "tools" / "labextension.py", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_holds_the_extension_where_jupyter_looks_for_it(wheel: Path) -> None:
    """The wheel has the page, the settings, install.json and the server's configuration as data
    files, each of them once.
    """
    names = zipfile.ZipFile(wheel).namelist()
    data = f"tfcluster_magic-{tfcluster_magic.__version__}.data/data"
    front = f"{data}/share/jupyter/labextensions/{NAME}"
    held = {name.removeprefix(f"{front}/") for name in names if name.startswith(front)}
    assert {"package.json", "install.json", "static/style.js"} <= held
    assert {f"schemas/{NAME}/{path.name}" for path in (SOURCES / "schema").iterdir()} <= held
    assert f"{data}/etc/jupyter/jupyter_server_config.d/tfcluster_magic.json" in names
    entry = json.loads(zipfile.ZipFile(wheel).read(f"{front}/package.json"))["jupyterlab"]
    assert entry["_build"]["load"] in held
    assert not [name for name in names if "tfcluster_magic/labextension" in name]
    assert not [name for name in names if name.endswith((".ts", ".tsx", "built-from.txt", ".map"))]


def test_installing_the_wheel_enables_both_halves_without_node(wheel: Path, tmp_path: Path) -> None:
    """Without a working Node, JupyterLab and its server list the installed extension as enabled and
    OK.
    """
    environment, _ = node(tmp_path / "bin")
    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=False, symlinks=True)
    site = sysconfig.get_path("purelib", vars={"base": str(fresh)})
    # makes JupyterLab and pip importable
    Path(site, "packages.pth").write_text(sysconfig.get_path("purelib"))
    python = str(fresh / "bin" / "python")
    environment |= {"JUPYTER_CONFIG_DIR": str(tmp_path)}

    def said(*words: str) -> str:
        done = subprocess.run(
            [python, "-m", *words], env=environment, capture_output=True, text=True, check=True
        )
        return re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)

    said("pip", "install", "--no-deps", "--no-index", "--ignore-installed", str(wheel))
    front = said("jupyterlab.labextensions", "list")
    server = said("jupyter_server.extension.serverextension", "list")
    version = tfcluster_magic.__version__
    assert f"{NAME} v{version} enabled OK (python, tfcluster-magic)" in front, front
    assert str(fresh) in front
    assert "tfcluster_magic.server enabled" in server, server
    assert re.search(r"tfcluster_magic\.server +(\S+ +)?OK", server), server


def test_an_sdist_makes_the_wheel_without_node(sources: Path, tmp_path: Path) -> None:
    """An sdist contains the built extension, so its build needs no package that builds
    extensions.
    """
    environment, mark = node(tmp_path / "bin")
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path]
    subprocess.run(build, cwd=sources, env=environment, capture_output=True, check=True)
    shutil.unpack_archive(next(tmp_path.glob("*.tar.gz")), tmp_path)
    clone = next(tmp_path.glob("tfcluster_magic-*/"))
    assert run_tool(clone, "current").returncode == 0
    assert not (clone / "labextension" / "node_modules").exists()
    hook = "import build_backend as b; print(b.get_requires_for_build_wheel())"
    asked = subprocess.run(
        [sys.executable, "-c", hook],
        cwd=clone,
        env={**environment, "PYTHONPATH": str(clone / "tools")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "jupyter-builder" not in asked.stdout and "nodejs" not in asked.stdout
    assert not mark.exists()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a clone with the tool and an extension of one file, which was never built."""
    folder = tmp_path / "clone"
    (folder / "tools").mkdir(parents=True)
    shutil.copy(TOOL, folder / "tools")
    for name, text in {
        "package.json": '{"name": "tiny", "dependencies": {"tiny-package": "^1.0.0"}}',
        "yarn.lock": "",
        ".yarnrc.yml": (SOURCES / ".yarnrc.yml").read_text(),
        "tsconfig.json": "{}",
        "scripts/core.mjs": "",
        "src/index.ts": "export {}",
    }.items():
        path = folder / "labextension" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def put_in_cache(clone: Path, cache: Path) -> None:
    """Write a build of the same sources into the cache, as another clone would."""
    ask = "import labextension as e; print(e.digest()); print(e.kept())"
    digest, kept = subprocess.run(
        [sys.executable, "-c", ask],
        env={**os.environ, "PYTHONPATH": str(clone / "tools"), "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    Path(kept).mkdir(parents=True)
    Path(kept, "static.js").write_text("built elsewhere")
    Path(kept, "built-from.txt").write_text(digest)


def test_what_another_clone_built_is_not_built_again(clone: Path, tmp_path: Path) -> None:
    """A build of the same sources is taken from the user's cache, so a failing Node does not
    matter.
    """
    environment, mark = node(tmp_path / "bin")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": environment["PATH"]}
    put_in_cache(clone, tmp_path / "cache")
    assert run_tool(clone, "current").returncode == 1
    done = run_tool(clone, "build", **cache)
    assert (done.returncode, mark.exists()) == (0, False), done.stderr
    built = clone / "tfcluster_magic" / "labextension"
    assert (built / "static.js").read_text() == "built elsewhere"
    assert run_tool(clone, "current").returncode == 0
    assert run_tool(clone, "build", **cache).stdout == ""  # there is nothing to report


def test_only_what_goes_into_the_extension_asks_for_a_build(clone: Path, tmp_path: Path) -> None:
    """A changed unit test needs no build; a changed source, style, setting or dependency does."""
    put_in_cache(clone, tmp_path / "cache")
    run_tool(clone, "build", XDG_CACHE_HOME=str(tmp_path / "cache"))
    (clone / "labextension" / "src" / "index.test.ts").write_text("it()")
    assert run_tool(clone, "current").returncode == 0
    for name in ("src/new.ts", "style/base.css", "schema/plugin.json", "yarn.lock"):
        path = clone / "labextension" / name
        path.parent.mkdir(exist_ok=True)
        before = path.read_bytes() if path.exists() else None
        path.write_text("changed")
        assert run_tool(clone, "current").returncode == 1, name
        path.unlink() if before is None else path.write_bytes(before)
        assert run_tool(clone, "current").returncode == 0, name


def test_a_registry_that_is_away_is_named_as_the_reason(clone: Path, tmp_path: Path) -> None:
    """If npm packages cannot be fetched, the build says what could not be fetched and how to use a
    mirror.
    """
    done = run_tool(
        clone,
        "build",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        YARN_GLOBAL_FOLDER=str(tmp_path / "yarn"),
        YARN_HTTP_RETRY="0",
        YARN_NPM_REGISTRY_SERVER="http://127.0.0.1:9",
        YARN_UNSAFE_HTTP_WHITELIST="127.0.0.1",
        YARN_ENABLE_IMMUTABLE_INSTALLS="0",
    )
    assert done.returncode == 1
    assert "npm packages of labextension/yarn.lock could not be fetched" in done.stderr
    assert "YARN_NPM_REGISTRY_SERVER" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (clone / "tfcluster_magic").exists()


def test_a_package_can_be_built_without_the_extension_and_says_so(
    sources: Path, tmp_path: Path
) -> None:
    """A build leaves the extension out if its sources are missing, as for an image without a
    notebook, or if TFCLUSTER_WITHOUT_LABEXTENSION is set. The build says so.
    """
    ask = "import labextension as e; print(e.left_out()); print(e.requirements())"

    def said(folder: Path, **environment: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", ask],
            env={**os.environ, "PYTHONPATH": str(folder / "tools"), **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()

    bare = tmp_path / "bare"
    shutil.copytree(sources / "tools", bare / "tools")
    assert said(bare) == ["there is no folder labextension here", "[]"]
    skip = {"TFCLUSTER_WITHOUT_LABEXTENSION": "1"}
    assert said(sources, **skip) == ["TFCLUSTER_WITHOUT_LABEXTENSION is set", "[]"]
    assert said(sources)[0] == "None"


def test_only_the_notebook_image_is_built_anew_when_the_extension_changes() -> None:
    """The digest of the notebook image includes the extension's sources, but no built or downloaded
    files.
    """
    notebook, hub = images.contents("notebook"), images.contents("hub")
    assert "labextension/src/index.ts" in notebook and "labextension/yarn.lock" in notebook
    assert "jupyter-config/tfcluster_magic.json" in notebook
    assert not [name for name in hub if name.startswith(("labextension", "jupyter-config"))]
    for name in (*notebook, *hub):
        assert not re.search("node_modules|/lib/|tfcluster_magic/labextension", name), name


def test_the_extension_is_made_for_the_oldest_jupyterlab_and_accepts_newer_ones() -> None:
    """The types are those of JupyterLab 4.2, so the compiler refuses newer API. The version ranges
    allow newer versions of JupyterLab.
    """
    package = json.loads((SOURCES / "package.json").read_text())
    assert package["version"] == tfcluster_magic.__version__
    assert package["dependencies"]["@jupyterlab/application"] == "^4.2.0"
    lock = (SOURCES / "yarn.lock").read_text()
    locked = dict(re.findall(r'resolution: "(@jupyterlab/[\w-]+)@npm:([\d.]+)"', lock))
    newer = {name for name, version in locked.items() if re.match(r"4\.[3-9]", version)}
    assert newer == {
        "@jupyterlab/apputils",
        "@jupyterlab/core-meta",
    }  # JupyterLab 4.2 contains version 4.3 of these packages
    assert locked["@jupyterlab/application"].startswith("4.2.")
    assert (
        not {*package["dependencies"]}
        - {*package["resolutions"]}
        - {name for name in package["dependencies"] if name.startswith(("@lumino/", "react"))}
    )


def test_a_typescript_file_can_be_read_in_one_sitting() -> None:
    """No TypeScript file is longer than 600 lines, except the file that is generated from the
    schema.
    """
    long = {
        path.name: lines
        for path in (SOURCES / "src").rglob("*.ts*")
        if (lines := len(path.read_text().splitlines())) > LONGEST and path.name != "models.ts"
    }
    assert not long


def test_typescript_files_import_in_no_circle() -> None:
    """No file of the extension imports itself through other files, not even for types."""
    folder = SOURCES / "src"
    files = {path.with_suffix("").as_posix(): path for path in folder.rglob("*.ts*")}
    imported = {
        name: {
            found
            for said in re.findall(r"from '(\.[^']*)'", path.read_text())
            if (found := os.path.normpath(path.parent / said)) in files
        }
        for name, path in files.items()
    }
    while free := {name for name, needs in imported.items() if not needs}:
        imported = {name: needs - free for name, needs in imported.items() if name not in free}
    assert not imported, f"these files import each other: {sorted(imported)}"
