// The kernels as one include: what a device on CPUs calls. Knows arithmetic, nothing about models, ranks or threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/share.hpp>
#include <tenon/kernel/attention.hpp>
#include <tenon/kernel/float_environment.hpp>
#include <tenon/kernel/isa.hpp>
#include <tenon/kernel/packed_matrix.hpp>
#include <tenon/kernel/rope_frequencies.hpp>
#include <tenon/kernel/table.hpp>
