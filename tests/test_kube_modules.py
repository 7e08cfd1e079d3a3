"""What the folders of the Kubernetes node's modules say: what is built, and which version."""

from __future__ import annotations

from kubenode import modules


def test_every_module_folder_says_what_is_built_and_which_version() -> None:
    """Each program has one module, each server's version is in its go.mod, each go.sum is there."""
    known = modules.known()
    assert tuple(known)[: len(modules.DEFAULT)] == modules.DEFAULT
    names = [name for module in known.values() for name in module.programs.values()]
    assert len(names) == len({*names}) and {"kube-apiserver", "etcd", "pause"} <= {*names}
    for module in known.values():
        assert module.needs_go >= (1, 20)
        if module.name != "pause":
            assert module.version.startswith("v") and (module.folder / "go.sum").exists()
    assert {*modules.RESOURCES, *modules.TAGS, *modules.VERSIONED} <= {*known}


def test_the_servers_tell_the_version_of_go_mod() -> None:
    """Kubernetes is linked with the version that its go.mod names, and no other place names one."""
    kubernetes = modules.known()["kubernetes"]
    major, minor = kubernetes.version[1:].split(".")[:2]
    link = kubernetes.flags[-1]
    assert f"version.gitVersion={kubernetes.version} " in link
    assert f"gitMajor={major} " in link and f"gitMinor={minor} " in link
