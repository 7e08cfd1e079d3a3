"""The notebook: `%tfcluster`, the output of cells, and the panel. Importing it imports nothing."""
