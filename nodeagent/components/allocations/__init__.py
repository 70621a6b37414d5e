"""Who has which device: a journal, durable before the kubelet is answered, held against what the kubelet says."""
