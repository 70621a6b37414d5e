"""NVIDIA's DRA driver and ours: the configurations that they take, and the devices that they publish."""
