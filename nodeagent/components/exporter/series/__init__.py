"""What is remembered between two looks so that readings become series."""
