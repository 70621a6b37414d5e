"""Offers this node's GPUs to the kubelet and hands them to containers."""
