"""Carries out what the lifecycle decides, run by run: objects, Jobs, status, retention."""
