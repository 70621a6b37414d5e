"""A resource that counts parts of GPUs, as the kubelet asks about it."""
