// Included by one file of a program, or of a library: compiles there what compiled.hpp leaves out of the others.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/tenon.hpp>

#define TENON_TEMPLATE template
#include <tenon/detail/instantiations.inc>
#undef TENON_TEMPLATE
