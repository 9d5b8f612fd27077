// The kernels of a sanitizer build.
// SPDX-License-Identifier: Apache-2.0
#include <tenon/kernel/table.hpp>

template tenon::kernel::table const& tenon::kernel::table_of<void>(tenon::kernel::isa);
