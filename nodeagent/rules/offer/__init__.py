"""The node's offer: devices by resource name, and the number of replicas of each."""
