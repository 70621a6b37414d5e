"""Devices of any vendor: which there are, what they are called, how they are given, whether they work."""
