"""The agent's side: asks the worker by deadline and turns its answers into the vocabulary; makes no native call."""
