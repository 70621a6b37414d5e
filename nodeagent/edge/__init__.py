"""Touches the world, one neighbour each; translates and decides nothing."""
