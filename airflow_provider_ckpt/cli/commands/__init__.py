"""One module per group of commands; each function takes the arguments and a session, and returns a result."""
