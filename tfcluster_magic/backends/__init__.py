"""The backends on which clusters run, all with the same interface (`base.Backend`)."""
