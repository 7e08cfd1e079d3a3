"""The state of a run, read from its pods, Jobs and events: exits, observations, reasons for
waiting.
"""
