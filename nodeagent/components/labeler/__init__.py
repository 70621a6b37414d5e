"""This node's labels, wherever they are wanted."""
