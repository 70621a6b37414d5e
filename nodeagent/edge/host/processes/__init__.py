"""Processes: who holds the devices, of which pod, and who is at the other end of a socket."""
