"""What this node offers: which devices go by which resource name, and how many times each."""
