"""Fractions of GPUs: their holders, the decisions behind them, and other limits for a running container."""
