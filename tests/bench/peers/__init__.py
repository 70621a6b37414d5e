"""The agent beside NVIDIA's own programs: the same work on the same fake driver, in turns, as ratios with goals."""
