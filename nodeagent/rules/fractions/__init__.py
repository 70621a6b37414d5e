"""Fractions of GPUs: possible requests, device ids, and the holders of fractions."""
