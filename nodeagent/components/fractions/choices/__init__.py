"""What schedulers chose, held against what containers have."""
