"""Decides when a run begins: admission, launch queue, gang scheduling, published options."""
