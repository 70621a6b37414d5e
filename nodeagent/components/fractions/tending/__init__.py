"""What has become of what was given: held against the kubelet, the runtime and the GPUs, and given back at its end."""
