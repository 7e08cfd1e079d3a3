"""Progress of a run's training, from the files that its tasks write and the lines they print."""
