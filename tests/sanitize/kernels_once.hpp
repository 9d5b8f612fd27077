// Included before everything else in a sanitizer build: the kernels, which are half of what such a file takes to compile, are compiled
// once, in kernels.cpp, and not in every file.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/kernel/table.hpp>

extern template tenon::kernel::table const& tenon::kernel::table_of<void>(tenon::kernel::isa);
