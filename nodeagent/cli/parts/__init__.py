"""Parts of GPUs: who has which, how that was decided, and other limits for a running container."""
