#!/bin/sh
# The gate before the driver's container: the node has no driver of its own, and no process holds an older driver.
set -eu
host=${HOST_ROOT:-/host}
modules=${MODULES:-/sys/module}
run=${RUN_NVIDIA:-/run/nvidia}

for place in usr/lib64 usr/lib/x86_64-linux-gnu usr/lib/aarch64-linux-gnu lib64 lib/x86_64-linux-gnu lib/aarch64-linux-gnu; do
  library=$place/libnvidia-ml.so.1
  if [ -e "$host/$library" ] || [ -L "$host/$library" ]; then
    echo "this node has a driver of its own (/$library): remove its packages, or keep driver pods off the node by driver.nodeSelector" >&2
    exit 1
  fi
done

# A driver of the same configuration stays loaded: its container takes it over and touches nobody.
if grep -qsF -- "$DRIVER_CONFIG_DIGEST" "$run/nvidia-driver.state"; then
  exit 0
fi

# Prints the modules that more than other modules hold.
list_held() {
  for module in nvidia_drm nvidia_modeset nvidia_uvm nvidia_peermem nvidia_fs gdrdrv nvidia; do
    held=$(cat "$modules/$module/refcnt" 2>/dev/null || echo 0)
    others=$(ls "$modules/$module/holders" 2>/dev/null | wc -l)
    if [ "$held" -gt "$others" ]; then
      echo "$module"
    fi
  done
}

told=
while held=$(list_held | tr '\n' ' ') && [ -n "$held" ]; do
  if [ "$held" != "$told" ]; then
    echo "waiting until nobody holds the driver that is loaded: $held"
    echo "drain the node of pods with GPUs, then: nodeagent release"
    told=$held
  fi
  sleep 2
done
