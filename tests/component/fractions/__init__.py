"""The component that gives GPUs in parts."""
