"""TensorBoard: its process, the registry of those that run, and what each shows."""
