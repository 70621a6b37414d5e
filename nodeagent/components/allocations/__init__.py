"""Devices and their holders: a journal, durable before the kubelet is answered, compared with the kubelet's list."""
