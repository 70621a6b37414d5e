"""Devices of any vendor: discovery, names, answers to Allocate, health."""
