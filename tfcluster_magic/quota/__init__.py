"""Quotas: the fit of a launch, the used hours, and the remaining budgets and storage."""
