"""The backends on which clusters run, each behind the same few verbs (`base.Backend`)."""
