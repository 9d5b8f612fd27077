// The kernels of a sanitizer build, and the rest of what loads and runs a model.
// SPDX-License-Identifier: Apache-2.0
#include <tenon/compile.hpp>
