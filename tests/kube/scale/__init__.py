"""What 600 tasks cost on fake nodes, beside other ways to the same pods: bench_scale.py runs it."""
