"""What the pods of this node ask for and what schedulers wrote on them."""
