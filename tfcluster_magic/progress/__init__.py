"""How far a run's training is, read from the files that its tasks write."""
