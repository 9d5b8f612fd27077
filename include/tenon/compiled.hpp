// The front door of a program in which one file has compiled tenon: this file then takes a fifth of the time. Include it before, or instead
// of, every other header of tenon; compile.hpp is for the one file. Nothing else differs: what is called is the same code.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/tenon.hpp>

#define TENON_TEMPLATE extern template
#include <tenon/detail/instantiations.inc>
#undef TENON_TEMPLATE
