"""Evidence about a GPU, and the meaning of each kind."""
