"""Training progress of a run, from the files that its tasks write and the lines that they print."""
