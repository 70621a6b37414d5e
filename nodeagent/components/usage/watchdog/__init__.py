"""Ends processes of containers over the memory of their fraction, where configured."""
