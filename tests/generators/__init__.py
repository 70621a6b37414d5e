"""What `python -m tests.generate` writes: each module has a `render()` from sources to files, and writes nothing."""
