"""The jobs of `magnetar pipeline` on access records: each is a function that returns a `Report`."""
