"""Access records for the jobs: files are checked first, then read as DataFrames."""
