"""What the guided course teaches, as data and pure functions: measured results in, sentences and numbers out."""
