"""Helpers shared by tests; no test imports another test."""
