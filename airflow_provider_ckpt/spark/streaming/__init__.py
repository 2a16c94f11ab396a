"""A Structured Streaming query as files: what its checkpointLocation holds, and which of it one batch needs."""
