"""Links from tasks to what they are about."""
