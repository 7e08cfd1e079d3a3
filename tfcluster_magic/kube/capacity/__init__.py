"""Capacity for a run: the policy check, quotas and nodes, and hours that were used."""
