"""Quotas: whether a launch fits, the hours that a user has used, and what is left of budgets and
storage; policy files.
"""
