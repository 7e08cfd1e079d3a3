"""Reconciliation of each run: objects, Jobs, status and retention."""
