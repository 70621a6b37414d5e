"""Which fields there are, by which names they are chosen, and why some are missing."""
