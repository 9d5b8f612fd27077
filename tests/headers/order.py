# Checks that a header includes from its own folder or from one further left, and which headers may include a library.
# SPDX-License-Identifier: Apache-2.0
#
#   order.py INCLUDE_DIR
import pathlib
import re
import sys

# A folder on one line may not include from a folder on a later line.
ORDER = (("core",), ("kernel",), ("device",), ("model",), ("shard", "join", "boundary"), ("graph",), ("checkpoint",), ("runtime",))
LEVEL = {folder: level for level, folders in enumerate(ORDER) for folder in folders}
TWO_WAYS_IN, FRONT_DOOR = len(ORDER), len(ORDER) + 1

# A library's header, and the only header (or folder) of ours that may include it.
LIBRARIES = {"Eigen/": "device/eigen", "unsupported/Eigen/": "device/eigen", "xtensor": "device/xtensor", "xtl/": "device/xtensor",
             "mpi.h": "runtime/mpi", "cuda": "device/cuda", "mma.h": "device/cuda", "nlohmann/": None, "CLI/": None}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def level(path):
    """The place of a header in the order; None for the shared detail folder, which is nobody's."""
    parts = path.split("/")
    if len(parts) == 1:
        if path in ("compile.hpp", "compiled.hpp"):  # the front door, compiled once
            return FRONT_DOOR + 1
        return FRONT_DOOR if path == "tenon.hpp" else -1 if path == "version.hpp" else TWO_WAYS_IN
    return None if parts[0] == "detail" else LEVEL.get(parts[0], FRONT_DOOR)


def faults(root):
    ours = root / "tenon"
    for header in sorted([*ours.rglob("*.hpp"), *ours.rglob("*.inc")]):
        name = header.relative_to(ours).as_posix()
        text = header.read_text(encoding="utf-8")
        if header.suffix == ".hpp" and "#pragma once" not in text:
            yield f"{name}: no #pragma once"
        if name.count("/") and name.split("/")[0] not in LEVEL and not name.startswith("detail/"):
            yield f"{name}: a folder that is not in the order"
        for bracket, target in INCLUDE.findall(text):
            beside = (header.parent / target).resolve()
            if target.startswith("tenon/"):
                inner = target[len("tenon/"):]
            elif bracket == '"' and beside.is_relative_to(ours.resolve()):
                inner = beside.relative_to(ours.resolve()).as_posix()
            else:
                for library, owner in LIBRARIES.items():
                    if target.startswith(library) and (owner is None or not name.startswith(owner)):
                        yield f"{name}: includes <{target}>, which is for {owner or 'tools and tests'} alone"
                if name.startswith("core/") and re.search(r"[./]", target):
                    yield f"{name}: core includes the standard library only, not <{target}>"
                continue
            if not (ours / inner).is_file():
                yield f"{name}: includes {target}, which is not there"
            here, there = level(name), level(inner)
            if here is not None and there is not None and there > here:
                yield f"{name}: includes {inner}, which is further right in the order"
            elif here is None and there is not None and there > 0:
                yield f"{name}: detail/ is included from anywhere, so it includes detail/ and core/ only, not {inner}"


def main(arguments):
    found = list(faults(pathlib.Path(arguments[0])))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
