#!/bin/sh
# Makes a Debian package of the agent with its pinned libraries, for this Debian, this Python and this processor:
#
#   make deb                                   (or: deploy/deb.sh dist/nodeagent-*.whl dist)
#
# The libraries lie in a directory of the agent's own and are in no other program's way. Needs pip and dpkg-deb, no
# root.
set -eu
wheel=$1
target=$2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
home=$tree/usr/lib/nodeagent
python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
after=$(python3 -c 'import sys; print("%d.%d" % (sys.version_info[0], sys.version_info[1] + 1))')
version=$(basename "$wheel" | cut -d- -f2 | sed 's/\.dev/~dev/')
architecture=$(dpkg --print-architecture)

put() { python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --no-deps --target "$home" "$@"; }
put --require-hashes -r requirements/runtime.txt
put --no-index "$wheel" 2>/dev/null
rm -rf "$home/bin"
# The wheel carries the programs in C for every processor, the package those of its own.
find "$home/nodeagent/native/built" -mindepth 1 -maxdepth 1 ! -name "$(uname -m)" -exec rm -r {} +

# What the wheel carries beside the program goes where systemd and man look for it.
mkdir -p "$tree/lib/systemd" "$tree/usr/lib" "$tree/usr/share" "$tree/usr/bin" "$tree/DEBIAN"
python3 -m zipfile -e "$wheel" "$tree/wheel"
mv "$tree"/wheel/*.data/data/lib/systemd/system "$tree/lib/systemd/system"
mv "$tree"/wheel/*.data/data/lib/tmpfiles.d "$tree/usr/lib/tmpfiles.d"
mv "$tree"/wheel/*.data/data/share/man "$tree/usr/share/man"
gzip -9n "$tree"/usr/share/man/man1/*
rm -rf "$tree/wheel" "$home/lib" "$home/share"

cat >"$tree/usr/bin/nodeagent" <<'PROGRAM'
#!/usr/bin/python3 -P
"""Starts the agent from its own directory, bytecode and all."""
import sys

sys.path.insert(0, "/usr/lib/nodeagent")
from nodeagent.__main__ import main

sys.exit(main())
PROGRAM
chmod 755 "$tree/usr/bin/nodeagent"
python3 -m compileall -q --invalidation-mode unchecked-hash -s "$tree" "$home"

cat >"$tree/DEBIAN/control" <<CONTROL
Package: nodeagent
Version: $version
Architecture: $architecture
Maintainer: The nodeagent developers
Section: admin
Priority: optional
Installed-Size: $(du -sk "$tree" | cut -f1)
Depends: python3 (>= $python), python3 (<< $after)
Description: node agent for NVIDIA GPUs
 Driver probe, CDI, device plugin, labels, metrics, health and recovery of one
 Kubernetes node, in one process.
CONTROL
cat >"$tree/DEBIAN/postinst" <<'SCRIPT'
#!/bin/sh
set -e
[ -d /run/systemd/system ] || exit 0
systemd-tmpfiles --create nodeagent.conf
systemctl daemon-reload
# An upgrade goes on with the new version; a first installation is started by its owner.
systemctl try-restart nodeagent.service
SCRIPT
cat >"$tree/DEBIAN/prerm" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl disable --now --quiet nodeagent.service
fi
SCRIPT
cat >"$tree/DEBIAN/postrm" <<'SCRIPT'
#!/bin/sh
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
# The journal is the node's, not the package's: `nodeagent uninstall` takes it away, before the package goes.
SCRIPT
chmod 755 "$tree"/DEBIAN/p*
mkdir -p "$target"
dpkg-deb --root-owner-group -Zgzip --build "$tree" "$target/nodeagent_${version}_$architecture.deb" >/dev/null
ls -l "$target"/nodeagent_*.deb
