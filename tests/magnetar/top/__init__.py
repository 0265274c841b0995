"""`magnetar top`: scrapes, rates between them, words, the screen, and the command against a broker."""
