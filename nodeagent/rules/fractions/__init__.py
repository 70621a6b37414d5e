"""Fractions of GPUs: possible requests, device ids and the holders of fractions, the work left by a start or a loss."""
