"""Parts of GPUs: promised by count, bound to a container and to GPUs when it starts, released when it has ended."""
