#!/bin/sh
# Trains on Fashion-MNIST with two strategies and prints the table: what `make quickstart` runs after building.
#   docs/examples/quickstart.sh [options of quickstart.py]
set -eu
cd "$(dirname "$0")/../.."

# The Python that `.ci/install plots` has given matplotlib; without it the table comes without the plot.
python=python3
for candidate in "${TUTTI_DEPS:-${HOME-}/.cache/tutti}"/*/bin/python3; do
  if [ -x "$candidate" ] && "$candidate" -c 'import matplotlib' 2>/dev/null; then python=$candidate; fi
done
exec "$python" docs/examples/quickstart.py "$@"
