"""A resource of whole or shared GPUs, as the kubelet asks about it."""
