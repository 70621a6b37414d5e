"""Device nodes, and the kernel's word on them."""
