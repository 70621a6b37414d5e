"""Decisions of the component that looks after MPS daemons."""
