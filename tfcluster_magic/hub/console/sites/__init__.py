"""Sites of the console, with their runs, hours, storage and archives: machine or cluster."""
