"""A resource of one class of devices, as the kubelet asks about it."""
