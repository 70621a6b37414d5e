"""Why containers have certain GPUs, and why others wait."""
