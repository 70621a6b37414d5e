"""Which container it is that starts, by the kubelet's own records and the API server."""
