"""When a run begins: admission, launch queue, gang scheduling and published options."""
