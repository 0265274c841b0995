"""The nouns: position, entry, range set, topic name. They import no other room."""
