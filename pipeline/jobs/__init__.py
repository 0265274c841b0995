"""The jobs of `magnetar pipeline`: each a function on a record, whose answer is tables, text and plots."""
