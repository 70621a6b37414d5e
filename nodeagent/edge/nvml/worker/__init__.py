"""The worker's side: a process of its own in which the library is loaded and called."""
