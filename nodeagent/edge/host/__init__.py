"""The machine itself: files, device nodes, processes, kernel modules and kernel log, as several edges need them.

Work that cannot be done raises a `HostError` with the path and a remedy (the tree is in `errors`). A function names
only errors that its callers tell apart, or that say what is left behind.
"""
