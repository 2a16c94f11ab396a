"""What is true: pure Python, without I/O, without a clock, without randomness."""
