"""The choice of the best free devices for a container, with the reasons."""
