#!/bin/sh
# The startup probe of the driver's container: module, daemons and nvidia-smi work, and a file says so to other containers.
set -eu
modules=${MODULES:-/sys/module}
validations=${RUN_NVIDIA:-/run/nvidia}/validations
ready=$validations/.driver-ctr-ready
daemons=$validations/.driver-daemons-status

if [ ! -e "$modules/nvidia/refcnt" ]; then
  echo "the module nvidia is not loaded" >&2
  exit 1
fi
if [ -e "$daemons" ] && [ "$(cat "$daemons")" != Ready ]; then
  echo "the driver's daemons are not up: $(cat "$daemons")" >&2
  exit 1
fi
nvidia-smi
mkdir -p "$validations"
cat >"$ready.new" <<LINES
GDRCOPY_ENABLED: false
GDS_ENABLED: false
GPU_DIRECT_RDMA_ENABLED: ${GPU_DIRECT_RDMA_ENABLED:-false}
LINES
mv "$ready.new" "$ready"
