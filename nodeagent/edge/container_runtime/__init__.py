"""The container runtime of the node: sockets, processes, configuration files, restarts.

A runtime that does not answer in time, or answers nonsense, raises `RuntimeSilent`.
"""
