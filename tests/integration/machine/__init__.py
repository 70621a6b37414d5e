"""A fresh Debian in a directory: to install into as the guides say, and to build the image without an engine."""
