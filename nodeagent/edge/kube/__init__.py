"""The API server: a client, and the few objects that the agent reads and writes.

A request that fails raises a `KubeError` (the tree is in `errors`); a function names only errors that its callers tell
apart.
"""
