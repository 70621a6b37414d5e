"""The node's labels, in each place where labels are wanted."""
