"""Offers the node's GPUs to the kubelet and hands them to containers."""
