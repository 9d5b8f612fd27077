// One model, one prompt, several splits: text, time, bytes moved and the SHA-256 of all logits under each. The hashes are equal, or
// this program fails. Writes a picture of the last graph.
// SPDX-License-Identifier: Apache-2.0
//
//   quickstart MODEL_DIRECTORY OUTPUT_DIRECTORY        sh examples/quickstart.sh does both
#include <tenon/graph/describe.hpp>
#include <tenon/tenon.hpp>

#include "embedded_model/embedded.hpp"
#include "tools/sha256.hpp"

#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace tenon;

constexpr int half = embedded_model::half, last = embedded_model::last;

struct plain : graph<embedded_model, stage<layers<0, last>, device::cpu<0>>> {};

struct pipeline : graph<embedded_model, stage<layers<0, half - 1>, device::cpu<0>>, stage<layers<half, last>, device::cpu<1>>> {};

struct tensor_gather : graph<embedded_model, stage<layers<0, last>, device::cpu<0, 1>, shard::tensor<join::gather>>> {};

struct tensor_reduce : graph<embedded_model, stage<layers<0, last>, device::cpu<0, 1>, shard::tensor<join::reduce>>> {};

struct pipeline_of_tensor : graph<embedded_model,
    stage<layers<0, half - 1>, device::cpu<0, 1>, shard::tensor<join::gather>>,
    stage<layers<half, last>, device::cpu<2, 3>, shard::tensor<join::reduce>>> {};

/// Every row of logits, prompt and generated alike.
struct hashing final : logits_observer {
    tools::sha256 hash;
    void row(std::size_t, std::int64_t, std::span<float const> logits) override { hash.add(std::as_bytes(logits)); }
};

/// What must not depend on the split.
struct outcome {
    std::string text, sha256;
    bool operator==(outcome const&) const = default;
};

template <class Graph>
outcome run(std::string_view title, std::string const& directory, std::string_view prompt) {
    auto lm = causal_lm<Graph>::load(directory, runtime::threads{});
    hashing logits;
    std::vector<std::vector<token_id>> const prompts{tokens_of(prompt)};
    // Drawn with a seed: the same seed gives the same tokens under every split.
    generation const g = lm.generate_batch(prompts, {.max_new_tokens = 120, .sample = {.temperature = 0.5f, .seed = 1811}, .observer = &logits});
    outcome const result{text_of(g.ids[0]), logits.hash.hex()};
    census const moved = lm.counts();

    std::cout << title << ": " << Graph::plan() << "\n  text    " << result.text << "\n  took    ";
    std::printf("%.3f s", g.prefill_seconds + g.decode_seconds);
    std::fflush(stdout);
    std::cout << ", moved " << moved.total.bytes << " bytes in " << moved.total.messages << " messages\n  logits  sha256 " << result.sha256 << '\n';
    constexpr auto cost = Graph::cost(weights::stored, dtype::bf16);
    for (int r = 0; r < cost.ranks(); ++r) {
        rank_index const rank{r};
        std::cout << "  rank " << r << "  on device " << cost.device_of(rank).index << ": " << cost.weight_bytes(rank) << " weight bytes, "
                  << cost.kv_bytes_per_position(rank) << " KV bytes a position, " << cost.flops_per_token(rank) << " flops a token\n";
    }
    std::cout << '\n';
    return result;
}

int main(int argc, char** argv) try {
    if (argc != 3) return std::cerr << "usage: quickstart MODEL_DIRECTORY OUTPUT_DIRECTORY\n", 2;
    std::string const directory = argv[1], output = argv[2];
    constexpr std::string_view prompt = "She was ";

    outcome const expected = run<plain>("plain", directory, prompt);
    bool same = true;
    same = run<pipeline>("pipeline of 2", directory, prompt) == expected && same;
    same = run<tensor_gather>("tensor parallel, 2 ranks, gather", directory, prompt) == expected && same;
    same = run<tensor_reduce>("tensor parallel, 2 ranks, reduce", directory, prompt) == expected && same;
    same = run<pipeline_of_tensor>("pipeline of tensor-parallel stages", directory, prompt) == expected && same;

    std::string const path = output + "/graph.dot";
    std::ofstream picture(path);
    picture << to_dot(pipeline_of_tensor::view(), pipeline_of_tensor::cost(weights::stored, dtype::bf16));
    if (!picture.flush()) return std::cerr << path << " cannot be written\n", 1;
    if (!same) return std::cerr << "the logits differ\n", 1;
    std::cout << "the same text and the same bits under all five graphs\n";
    return 0;
} catch (std::exception const& e) {
    std::cerr << e.what() << '\n';
    return 1;
}
