"""The jobs of `magnetar pipeline` on access records. Each is a function that returns a `Report`."""
