"""The state of a run by its pods, Jobs and events: exits, observations, reasons for waiting."""
