"""Clusters as real processes on this machine; `backend.LocalBackend` is the door."""
