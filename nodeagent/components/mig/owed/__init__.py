"""Restores the labels paused by an earlier agent, where the present agent cuts no GPUs."""
