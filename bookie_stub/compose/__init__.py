"""The bookie as a whole. `start` opens its files and replays the journals, `bookie` joins its parts."""
