"""The scheduler's extender: which node and which GPUs a pod with parts of GPUs gets, decided before it is bound."""
