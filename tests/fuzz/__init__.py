"""Bad input on purpose, against the frame decoder and against a running broker."""
