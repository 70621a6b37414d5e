"""HTTP in front of the agent: the only place, with `edge.kube`, that imports aiohttp."""
