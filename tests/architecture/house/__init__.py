"""How plain the house is: words, docstrings, files, protocols, and the files that a call of the kubelet crosses."""
