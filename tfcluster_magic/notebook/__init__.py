"""The notebook interface: `%tfcluster`, the output of cells, and the panel."""
