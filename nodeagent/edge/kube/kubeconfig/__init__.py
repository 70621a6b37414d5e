"""Kubeconfigs, read by kubernetes_asyncio in a child process, which hands over values and ends."""
