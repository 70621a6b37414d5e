"""One side of the node each: the parts that have to do with it are built here, with the edges they use."""
