"""Device nodes and what the kernel says of them."""
