"""Kubeconfigs, read by kubernetes_asyncio in a child process of its own, which hands over values and ends."""
