"""Paths of the project's folders, for tests in any folder."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
DATA = TESTS / "data"
"""Recordings of real clusters and runs, and golden files."""
