"""How parts tell one another what is true and what happened: the bus, its readers, and what it remembers."""
