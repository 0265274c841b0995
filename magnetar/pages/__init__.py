"""The pages of reference that `python -m magnetar.commands.generate` makes of tables in the code."""
