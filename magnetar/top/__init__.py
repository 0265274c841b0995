"""`magnetar top`: a Pulsar's metrics as numbers per second, and a screen of them and of the console for a terminal."""
