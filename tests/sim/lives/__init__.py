"""Topics of a simulated broker from creation to deletion, and everything that removes data from them."""
