"""Costs of 600 tasks on fake nodes, compared with other ways to create the same pods;
bench_scale.py runs them.
"""
