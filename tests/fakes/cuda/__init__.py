"""A CUDA driver without a GPU: the calls that allocate, with an account of its own that judges whoever limits them."""
