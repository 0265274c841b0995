"""Access records as the jobs see them: which files can be trusted, and their rows as DataFrames and as columns."""
