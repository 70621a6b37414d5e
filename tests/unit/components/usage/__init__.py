"""What containers use of their parts."""
