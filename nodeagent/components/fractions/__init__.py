"""Fractions of GPUs: reserved by count, bound to a container and to GPUs at PreStart, released after its end."""
