"""TensorBoard: its processes, their registry, and the views that they show."""
