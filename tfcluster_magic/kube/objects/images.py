"""References of container images, and patterns that admit images. Pure.

A reference is parsed as container runtimes parse it (registry, repository, tag, digest). Otherwise
this module could admit a text that means another image to a runtime.

Ref: https://github.com/distribution/reference/blob/main/reference.go
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ...i18n import _
from ...spec import Message

DOCKER_HUB, LIBRARY, LATEST = "docker.io", "library", "latest"
_HOST = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_REGISTRY = re.compile(rf"(?:{_HOST}(?:\.{_HOST})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?")
_COMPONENT = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")
_ID = re.compile(r"[a-f0-9]{64}")
_WILD = re.compile(r"[*?\[]")
_LONGEST = 255


@dataclass(frozen=True)
class ImageReference:
    """An image or a pattern of images; `tag` and `digest` are empty if the text has none."""

    registry: str
    repository: tuple[str, ...]
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """The image's registry and repository as one text, without tag and digest."""
        return "/".join((self.registry, *self.repository))


def parse_image(text: str) -> ImageReference:
    """Return the image that a text names, with defaults filled in: `python` is
    `docker.io/library/python:latest`. Raises ValueError if the text is not an image reference.
    """
    found = _split(text)
    tag = found.tag or ("" if found.digest else LATEST)
    if not _REGISTRY.fullmatch(found.registry) or not all(
        _COMPONENT.fullmatch(each) for each in found.repository
    ):
        raise ValueError(Message("NotImage"))
    if tag and not _TAG.fullmatch(tag):
        raise ValueError(Message("NotImageTag", {"tag": repr(tag)}))
    if found.digest and not _DIGEST.fullmatch(found.digest):
        raise ValueError(Message("NotImageDigest", {"digest": repr(found.digest)}))
    if len(found.name) > _LONGEST or _ID.fullmatch(text):
        raise ValueError(Message("NotImage"))
    return ImageReference(found.registry, found.repository, tag, found.digest)


def _split(text: str) -> ImageReference:
    """Split a reference or pattern into registry, repository, tag and digest. Raises ValueError."""
    rest, at, digest = text.partition("@")
    path, slash, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    first, *others = f"{path}{slash}{last}".split("/")
    if (at and not digest) or (colon and not tag):
        raise ValueError(Message("ImageTagMissing"))
    # Container runtimes use the same test to decide whether the first part is a registry.
    is_registry = others and (
        any(mark in first for mark in ".:") or first == "localhost" or first != first.lower()
    )
    if not is_registry:
        first, others = DOCKER_HUB, [first, *others]
    # Host names are case-insensitive, so they become lower case. But a first part without "." and
    # ":" keeps its capital letters, because only these show that it is a registry.
    registry = first.lower() if any(mark in first for mark in ".:") else first
    if registry == f"index.{DOCKER_HUB}":
        registry = DOCKER_HUB
    if registry == DOCKER_HUB and len(others) == 1:
        others = [LIBRARY, *others]
    return ImageReference(registry, tuple(others), tag, digest)


def is_same_image(one: str, other: str) -> bool:
    """Return whether two texts name the same image."""
    try:
        return parse_image(one) == parse_image(other)
    except ValueError:
        return False


def pattern_mistake(text: str) -> str:
    """Return why a text is not a pattern of images; empty if it is one."""
    try:
        if not _WILD.search(text):
            parse_image(text)
            return ""
        found = _split(text)
    except ValueError as error:
        return str(error)
    parts = [found.registry, *found.repository]
    if not all(parts) or any(re.search(r"[^A-Za-z0-9._:*?!\[\]-]", each) for each in parts):
        return _("it is not an image pattern: write REGISTRY/REPOSITORY:TAG, with * in its parts")
    if "**" in found.registry:
        return _("** is allowed in a repository, not in a registry")
    return ""


def admits_image(pattern: str, image: ImageReference) -> bool:
    """Return whether a pattern admits an image; pattern and image are compared part by part.

    `*` matches inside one part of the registry or repository; `**` as a whole part matches one or
    more parts. A pattern without wildcards is one image. A pattern with a tag admits no digest,
    because a runtime ignores the tag of an image with a digest.
    """
    if pattern_mistake(pattern):
        return False
    if not _WILD.search(pattern):
        wanted = parse_image(pattern)
        if wanted.digest:
            return (wanted.name, wanted.digest) == (image.name, image.digest)
        return wanted == image
    wanted = _split(pattern)
    if not _is_registry(wanted.registry, image.registry):
        return False
    if not _is_path(wanted.repository, image.repository):
        return False
    if wanted.digest:
        return bool(image.digest) and fnmatchcase(image.digest, wanted.digest)
    if wanted.tag:
        return not image.digest and fnmatchcase(image.tag, wanted.tag)
    return True


def _is_registry(pattern: str, registry: str) -> bool:
    """Return whether a registry matches a pattern. They are compared label by label, as in
    certificates: `*.example.com` admits no deeper name and no port.
    """
    wanted, found = (each.replace(":", ".:").split(".") for each in (pattern, registry))
    return len(wanted) == len(found) and all(
        name.startswith(":") == glob.startswith(":") and fnmatchcase(name, glob)
        for name, glob in zip(found, wanted, strict=True)
    )


def _is_path(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    if not pattern or not path:
        return not pattern and not path
    if pattern[0] == "**":
        return _is_path(pattern[1:], path[1:]) or _is_path(pattern, path[1:])
    return fnmatchcase(path[0], pattern[0]) and _is_path(pattern[1:], path[1:])
