# The packages that tenon's scripts need, in one place; read with `.` by tests/run.sh and examples/quickstart.sh.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2086  # lists of packages are split on purpose

# has_header NAME: whether the compiler finds it.
has_header() {
    printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | g++ -E -x c++ - >/dev/null 2>&1
}

# here PACKAGE: whether what the Debian package of that name brings is already on this machine, however it came.
here() {
    case $1 in
    g++) command -v g++ ;;
    meson) command -v meson ;;
    ninja-build) command -v ninja ;;
    pkg-config) command -v pkg-config ;;
    python3) command -v python3 ;;
    graphviz) command -v dot ;;
    clang-19) command -v clang++-19 ;;
    libclang-rt-19-dev) ls "$(clang++-19 -print-resource-dir)"/lib/*/libclang_rt.fuzzer* ;;
    valgrind) command -v valgrind ;;
    g++-aarch64-linux-gnu) command -v aarch64-linux-gnu-g++ ;;
    qemu-user) command -v qemu-aarch64 || command -v qemu-aarch64-static ;;
    doctest-dev) has_header doctest/doctest.h ;;
    libcli11-dev) has_header CLI/CLI.hpp ;;
    libopenmpi-dev) command -v mpicc ;;
    openmpi-bin) command -v mpirun ;;
    libeigen3-dev) has_header eigen3/Eigen/Core ;;
    libxtensor-dev) has_header xtensor/xtensor.hpp ;;
    nlohmann-json3-dev) has_header nlohmann/json.hpp ;;
    *) false ;;
    esac >/dev/null 2>&1
}

# missing PACKAGE...: prints those that are not here.
missing() {
    for package in "$@"; do
        here "$package" || printf '%s ' "$package"
    done
}

# as_root COMMAND...: runs it as root, or fails where this user cannot without being asked for a password.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

# set_up NEEDED WANTED: two lists. Installs what is missing where apt and root are at hand. Says what is missing otherwise, and
# fails if any of it is needed. Looks at the machine only, and asks apt nothing, when all of it is here.
set_up() {
    need=$(missing $1)
    want=$(missing $2)
    [ -n "$need$want" ] || return 0
    if command -v apt-get >/dev/null 2>&1 && as_root true 2>/dev/null; then
        known=
        for package in $want; do
            apt-cache show "$package" >/dev/null 2>&1 && known="$known $package"
        done
        if [ -n "$need$known" ]; then
            echo "installing: $need$known"
            as_root apt-get update -qq || true
            # What is only wanted may fail; then what is needed is tried without it.
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $need $known >/dev/null ||
                as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $need >/dev/null || true
        fi
        need=$(missing $1)
        want=$(missing $2)
    fi
    [ -z "$want" ] || echo "not here, and done without: $want"
    [ -z "$need" ] && return 0
    echo "missing, and to be installed first: $need" >&2
    return 1
}

# configured FOLDER [OPTION...]: configures a build folder that is new, in which a listed source file has come or gone since, or whose
# options are given.
configured() {
    if [ ! -f "$1/build.ninja" ]; then
        meson setup "$@"
    elif [ $# -gt 1 ] || ! python3 tests/list.py . | cmp -s - "$1/sources.txt"; then
        meson setup --reconfigure "$@"
    fi
}

# jobs_here: how many compilers at once. One takes up to 1.5 GiB here, so memory counts as well as cores.
jobs_here() {
    cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
    memory=$(awk '/^MemAvailable:/ { print int($2 / 1572864) }' /proc/meminfo 2>/dev/null || echo "$cores")
    [ "${memory:-0}" -ge 1 ] || memory=1
    [ "$cores" -le "$memory" ] && echo "$cores" || echo "$memory"
}
