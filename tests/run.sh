#!/bin/sh
# Builds and runs every test. The last line is `N passed, N failed`; the exit status is 0 only if some passed and none failed.
# SPDX-License-Identifier: Apache-2.0
#
#   sh tests/run.sh [MESON TEST ARGUMENT...]     e.g. `--suite unit`, or the name of one test
#   TENON_BUILD=FOLDER sh tests/run.sh           in another build folder than build/
#   TENON_SANITIZE=full sh tests/run.sh          every test under sanitizers too, for hours; quick by default, or none
set -u
cd "$(dirname "$0")/.." || exit 1
. examples/setup.sh

give_up() {
    echo "$1" >&2
    echo "0 passed, 1 failed"
    exit 1
}

set_up "g++ meson ninja-build pkg-config python3 doctest-dev libcli11-dev nlohmann-json3-dev libeigen3-dev libxtensor-dev" "clang-19 libclang-rt-19-dev g++-aarch64-linux-gnu qemu-user libopenmpi-dev openmpi-bin valgrind" || give_up "not set up"

build=${TENON_BUILD:-build}
jobs=$(jobs_here)
configured "$build" "-Dsanitize=${TENON_SANITIZE:-quick}" || give_up "meson setup failed"
# Not --quiet: a long build should show that it is alive.
ninja -C "$build" -j "$jobs" || give_up "the build failed"

log=$build/meson-logs/testlog.json
rm -f "$log"
# Parity runs up to eight ranks in one test: on few cores more tests at once only wait for each other.
[ "$jobs" -le 4 ] || jobs=4
status=0
meson test -C "$build" --no-rebuild --num-processes "$jobs" --print-errorlogs "$@" || status=$?
python3 tests/summary.py "$log"
summary=$?
[ "$status" -eq 0 ] && [ "$summary" -eq 0 ]
