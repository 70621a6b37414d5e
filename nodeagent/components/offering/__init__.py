"""The allocation mode of each GPU, and when the mode may change."""
