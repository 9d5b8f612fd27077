#!/bin/sh
# Generates text from the embedded model under several graphs that give the same bits, and draws the last one.
# SPDX-License-Identifier: Apache-2.0
#
#   sh examples/quickstart.sh [MODEL_DIRECTORY]      default: the embedded model
#   TENON_BUILD=FOLDER                                another build folder than build/
set -eu
# A model directory is named from where the caller stands.
model=
[ $# -eq 0 ] || model=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
. examples/setup.sh
set_up "g++ meson ninja-build pkg-config python3 doctest-dev libcli11-dev nlohmann-json3-dev libeigen3-dev libxtensor-dev" "graphviz"

build=${TENON_BUILD:-build}
configured "$build" >/dev/null
ninja -C "$build" -j "$(jobs_here)" examples/quickstart

out=$build/quickstart
mkdir -p "$out"
"$build/examples/quickstart" "${model:-examples/embedded_model/model}" "$out"

for drawing in "$out"/*.dot; do
    [ -f "$drawing" ] || continue
    if command -v dot >/dev/null 2>&1; then
        dot -Tsvg "$drawing" -o "${drawing%.dot}.svg"
        echo "picture: ${drawing%.dot}.svg"
    else
        echo "picture: $drawing (Graphviz would make an SVG of it)"
    fi
done
