"""Patterns for images, and the images that each pattern admits. Registry, repository, tag and
digest are compared, never the raw text.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfcluster_magic.kube.objects import images

SHA, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64

READ = [
    ("python", "docker.io/library/python", "latest", ""),
    ("docker.io/python:3", "docker.io/library/python", "3", ""),
    ("index.docker.io/library/python", "docker.io/library/python", "latest", ""),
    ("team/img", "docker.io/team/img", "latest", ""),
    ("python:33/evil/img", "python:33/evil/img", "latest", ""),
    ("reg:5000/x", "reg:5000/x", "latest", ""),
    ("localhost/x", "localhost/x", "latest", ""),
    ("REG.Example.com/x:V1", "reg.example.com/x", "V1", ""),
    (f"reg:5000/x:1@{SHA}", "reg:5000/x", "1", SHA),
    (f"x@{SHA}", "docker.io/library/x", "", SHA),
]


@pytest.mark.parametrize(("text", "name", "tag", "digest"), READ)
def test_a_reference_is_read_as_runtimes_read_it(
    text: str, name: str, tag: str, digest: str
) -> None:
    """Registry, repository, tag and digest are parsed, and missing parts get their defaults."""
    found = images.parse_image(text)
    assert (found.name, found.tag, found.digest) == (name, tag, digest)


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "Python", "a//b", "x:", "x@", "x:1:2", "a/b:c/d", "http://x/y", "x y", "x\n"),
        *("x@sha256:abc", f"x@{SHA}x", f"x@{SHA.upper()}", "-x", "x/../y", "a" * 64, "é/x", "x:-1"),
        "reg.example.com/" + "a/" * 130 + "b",
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    """Text that a container runtime refuses as a reference is refused here, too."""
    with pytest.raises(ValueError, match=r"."):
        images.parse_image(text)


ADMITTED = [
    ("python:3*", "python:3.11"),
    ("python:3*", "docker.io/library/python:3"),
    ("docker.io/library/python:3*", "python:3"),
    ("python", "python:latest"),
    ("registry.example.com/team/*", "registry.example.com/team/a:2"),
    ("registry.example.com/team/*", f"registry.example.com/team/a:2@{SHA}"),
    ("registry.example.com/team/*", "REGISTRY.example.com/team/a"),
    ("registry.example.com/team/**", "registry.example.com/team/a/b:2"),
    ("reg:5000/*", "reg:5000/x"),
    ("*.example.com/x", "reg.example.com/x:1"),
    ("reg.example.com:*/x", "reg.example.com:5000/x"),
    (f"x@{SHA}", f"x:1@{SHA}"),
    ("x@*", f"x@{SHA}"),
    ("x/**/y:?", "x/a/b/y:1"),
    ("team-[ab]/x:*", "team-a/x"),
]
REFUSED = [
    ("python:3*", "python:33/evil/img"),
    ("python:3*", "evil/python:3"),
    ("python*", "python.evil.example/img"),
    ("python", "python:3"),
    ("python:3", f"python:3@{SHA}"),  # an image is pulled by its digest, whatever its tag
    ("python:3*", f"python:3@{SHA}"),
    ("registry.example.com/team/*", "registry.example.com/team/a/b"),
    ("registry.example.com/team/*", "registry.example.com/team"),
    ("registry.example.com/team/**", "registry.example.com/team"),
    ("registry.example.com/team/*", "registry.example.com.evil.example/team/a"),
    ("registry.example.com/team/*", "registry.example.com:5000/team/a"),
    ("registry.example.com/team/*", "evil.example/registry.example.com/team/a"),
    ("*.example.com/x", "a.b.example.com/x"),
    ("*.example.com/x", "evil.example/example.com/x"),
    ("reg.*/x", "reg:5000/x"),
    ("reg*/x", "reg.evil.example/x"),
    ("*", "evil/img"),
    ("*/*", "evil.example/a/b"),
    (f"x@{SHA}", f"x@{OTHER}"),
    (f"x@{SHA}", "x"),
    ("x@*", "x:1"),
    ("Team/*", "docker.io/team/a"),  # a first part with a capital letter names a registry
]


@pytest.mark.parametrize(
    ("pattern", "image", "admitted"),
    [*((p, i, True) for p, i in ADMITTED), *((p, i, False) for p, i in REFUSED)],
)
def test_a_pattern_admits_part_by_part(pattern: str, image: str, admitted: bool) -> None:
    """A wildcard stays within its part of the name, and each part of a pattern matches only that
    part.
    """
    assert images.pattern_mistake(pattern) == ""
    assert images.admits_image(pattern, images.parse_image(image)) is admitted


@pytest.mark.parametrize(
    "pattern", ["", "x:", "a//*", "**.example.com/x", "x y*", "Python", "x/*/"]
)
def test_what_is_no_pattern_says_so_and_admits_nothing(pattern: str) -> None:
    """An invalid pattern is reported, and admits no image."""
    assert images.pattern_mistake(pattern)
    assert not images.admits_image(pattern, images.parse_image("x"))


WORDS = st.text("ab.:/@*-A5", min_size=1, max_size=14)


@given(WORDS)
def test_no_image_outside_of_a_repository_passes_for_one_in_it(text: str) -> None:
    """For any text, `reg.example.com/team/*` admits only images of that repository."""
    try:
        found = images.parse_image(text)
    except ValueError:
        return
    for image in (found, images.parse_image(f"reg.example.com/team/{'a' * 3}")):
        if images.admits_image("reg.example.com/team/*", image):
            assert (image.registry, image.repository[:-1]) == ("reg.example.com", ("team",))
    again = f"{found.name}:{found.tag}" if found.tag else found.name
    again += f"@{found.digest}" if found.digest else ""
    assert images.parse_image(again) == found
