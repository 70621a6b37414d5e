"""How components publish states and facts to one another: the bus, the readers and the history."""
