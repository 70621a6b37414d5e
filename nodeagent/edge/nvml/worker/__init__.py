"""The worker's side: a separate process in which the library is loaded and called.

Every reading of a lost GPU raises `GpuGone`.
"""
