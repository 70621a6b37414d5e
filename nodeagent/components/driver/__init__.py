"""Whether there is a driver that can be asked, and what is done about it."""
