"""`magnetar top`: a Pulsar's metrics as numbers per second, and a screen of them for a terminal."""
