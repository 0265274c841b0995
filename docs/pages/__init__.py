"""The pages of reference that `python -m docs.pages.generate` makes of tables in the code."""
