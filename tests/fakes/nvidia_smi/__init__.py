"""A stand-in for nvidia-smi, and the answers that it gives."""
