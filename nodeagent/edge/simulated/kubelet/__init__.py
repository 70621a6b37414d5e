"""A stand-in for the kubelet, faithful where a device plugin can feel it.

It registers plugins, watches their lists, admits pods, remembers who holds what, forgets when told to, and has the
known defects of the real one.
It runs no containers and speaks to no API server.
"""
