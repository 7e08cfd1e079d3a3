"""Sites of the console, one machine or a cluster: their runs, hours, storage and archives."""
