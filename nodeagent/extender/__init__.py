"""The scheduler's extender: the node and the GPUs of a pod with fractions, decided before the pod is bound."""
