"""Quotas: whether a launch fits, what was used, and what is left of budgets and storage."""
