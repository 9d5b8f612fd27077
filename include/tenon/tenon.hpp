// The front door: everything that describes, checks, loads and runs a graph with the standard library alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/causal_lm.hpp>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/model/llama.hpp>
