"""The component that looks after the doors."""
