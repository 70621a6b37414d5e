"""Whose a reading is: which pod, which container, which MIG device, by which names."""
