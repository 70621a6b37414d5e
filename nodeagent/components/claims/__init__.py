"""Claims of dynamic resource allocation: made ready before their pods start, and put away after the last of them."""
