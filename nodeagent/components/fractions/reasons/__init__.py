"""Why containers have the GPUs that they have, and why others wait."""
