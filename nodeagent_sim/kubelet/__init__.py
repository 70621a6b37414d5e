"""A stand-in for the kubelet, faithful in all that a device plugin notices.

The stand-in registers plugins, watches their lists, admits pods, remembers the holders of devices, forgets on demand,
and has the known defects of the real kubelet. Containers are not run, and no API server is called.
"""
