"""What can be given in parts, and what a container that starts is given."""
