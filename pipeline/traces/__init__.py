"""Access records for the jobs. Files are checked first, then read as DataFrames."""
