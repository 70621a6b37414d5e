"""The MPS daemons that hold containers to their parts: what a container is told of its own, once that is ready."""
