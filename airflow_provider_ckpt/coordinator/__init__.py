"""The use cases, one file each: what people, Dags and agents do with checkpoints."""
