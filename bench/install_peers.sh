#!/bin/sh
# Makes the virtual environment that the benchmarks' peers run in: sh bench/install_peers.sh [PATH]   (default: bench/.peers)
# PYTHON chooses the interpreter: PYTHON=python3.11 sh bench/install_peers.sh
set -eu

here=$(cd "$(dirname "$0")" && pwd)
place=${1:-"$here/.peers"}

"${PYTHON:-python3}" -m venv "$place"
pip() { "$place/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }

# torch first and by its exact version: whatever asks for a range would bring another one.
pip "$(grep '^torch==' "$here/peers.txt")"
pip -r "$here/peers.txt"
"$place/bin/python" -m pip check --disable-pip-version-check
echo "peers: $place"
