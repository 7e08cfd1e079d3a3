"""Clusters as processes on this machine; `backend.LocalBackend` is the interface."""
