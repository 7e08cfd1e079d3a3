"""Progress of a run's training, read from the files that its tasks write."""
