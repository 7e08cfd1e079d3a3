"""What pods, Jobs and events say of a run: exits, observations, reasons for waiting."""
