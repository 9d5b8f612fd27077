// Included before everything else in a sanitizer build: what takes long to compile is compiled once, in kernels.cpp, and not in every file.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/compiled.hpp>
