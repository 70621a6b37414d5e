"""The plugin of a device class, for the kubelet's questions."""
