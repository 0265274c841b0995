"""The nouns of the broker: position, entry, range set, topic name, errors. They import no other room."""
