"""What is computed from the record of brokers and bookies, away from them; nothing here runs inside a broker."""
