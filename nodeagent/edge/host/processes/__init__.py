"""Processes: holders of devices, pods of processes, and owners of sockets."""
