"""Docker 29 with its own CDI support, which gives GPUs by `--gpus` from our specification."""
