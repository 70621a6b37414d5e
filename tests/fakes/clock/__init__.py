"""A wall clock that can be stepped under a running process, while every other clock goes on."""
