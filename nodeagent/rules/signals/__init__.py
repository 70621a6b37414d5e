"""Faults as people and programs are told of them: severity, and the pods to be told."""
