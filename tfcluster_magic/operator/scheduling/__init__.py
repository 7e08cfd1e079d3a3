"""The start of runs: admission, launch queue, gang scheduling and published options."""
