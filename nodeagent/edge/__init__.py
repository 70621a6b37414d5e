"""Code that touches the world, one neighbour to a folder; translates and decides nothing."""
