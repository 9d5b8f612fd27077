// The front door: everything that describes, checks, loads and runs a graph with the standard library alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/causal_lm.hpp>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/model/llama.hpp>
#include <tenon/model/mistral.hpp>
#include <tenon/model/mixtral.hpp>
#include <tenon/model/phi3.hpp>
#include <tenon/model/qwen2.hpp>
#include <tenon/model/qwen3.hpp>
#include <tenon/model/qwen3_moe.hpp>
