"""Quantities as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfcluster_magic.spec.message_table import format_duration
from tfcluster_magic.spec.quantities import (
    format_bytes,
    non_finite_numbers,
    parse_duration,
    parse_memory,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [("2Gi", 2**31), ("512Mi", 2**29), ("1.5Gi", 3 * 2**29), ("1k", 1000), ("7", 7)],
)
def test_memory_is_read_as_kubernetes_does(text: str, count: int) -> None:
    """Binary and decimal suffixes mean what they mean in Kubernetes."""
    assert parse_memory(text) == count


@pytest.mark.parametrize("text", ["9" * 400 + "Gi", "\u0663Mi", "-1", "1e5", "Mi", ""])
def test_what_is_no_memory_is_refused(text: str) -> None:
    """An invalid amount is refused, however it is written."""
    with pytest.raises(ValueError, match="is not an amount of memory"):
        parse_memory(text)


@given(st.integers(0, 2**45).map(lambda n: n * 1024))
def test_formatted_memory_is_close_to_the_amount(count: int) -> None:
    """A formatted amount differs from the real amount by less than a tenth."""
    assert abs(parse_memory(format_bytes(count)) - count) <= count / 10


@pytest.mark.parametrize(
    ("text", "seconds"), [("45", 45), ("30s", 30), ("1h30m", 5400), ("1.5m", 90), ("7d", 604800)]
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    """A duration is written as a number of seconds, or as numbers with units."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "abc", "1h30", "-5s", "5 s", "10y"])
def test_other_durations_are_refused_with_the_rule(text: str) -> None:
    """A text that is no duration is refused, and the refusal has the allowed form."""
    with pytest.raises(ValueError, match="such as 30s"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5400, "1h 30m"), (0, "0s"), (0.25, "0.2s"), (90061, "1d 1h"), (59.6, "1m")],
)
def test_durations_are_shown_short(seconds: float, text: str) -> None:
    """A duration is shown with at most two units."""
    assert format_duration(seconds) == text


def test_numbers_that_are_none_are_found_where_they_stand() -> None:
    """NaN, infinities and integers too large for a float are found at any depth; other numbers are
    not.
    """
    data = {"a": [1, {"b": float("nan")}], "c": 10**400, "d": -float("inf"), "e": [10**300, True]}
    assert [path for path, _text in non_finite_numbers(data)] == ["a[1].b", "c", "d"]
    assert [*non_finite_numbers(float("inf"), "x")] == [("x", "inf")]
    with pytest.raises(ValueError, match="finite"):
        parse_duration("9" * 400)
