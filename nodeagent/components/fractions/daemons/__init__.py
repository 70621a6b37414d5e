"""The MPS daemons for fractions: mounts and environment of a container, once the daemon is ready."""
