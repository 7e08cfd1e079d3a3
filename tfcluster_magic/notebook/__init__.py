"""The notebook: `%tfcluster`, the output of its cells, and the panel. Importing it imports nothing."""
