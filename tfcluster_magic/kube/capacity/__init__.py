"""Whether a run may start here: the policy check, quotas and nodes, and hours that were used."""
