"""A fresh Debian in a directory: to install into as the documentation says, and to build the image without an engine."""
