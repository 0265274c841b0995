"""The event loop as the other rooms see it: its clock and its turns."""
