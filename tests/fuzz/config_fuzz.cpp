// Any bytes as a config.json: a model that keeps its laws, or a refusal.
// SPDX-License-Identifier: Apache-2.0
#include "mutate.hpp"

#include <tenon/checkpoint/config_json.hpp>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string_view const text = size == 0 ? std::string_view() : std::string_view(reinterpret_cast<char const*>(data), size);
    fuzz::refusing([text] {
        tenon::model_config const c = tenon::checkpoint::read_config(text, "fuzz");
        tenon::grouped_attention const& a = c.layer(0).attention;
        bool const whole =
            c.layers >= 1 && c.layers <= tenon::most_layers && a.kv_heads >= 1 && a.heads % a.kv_heads == 0 && a.head_dim % 2 == 0;
        if (!whole || !(c.rope.theta > 0) || !(c.rms_epsilon > 0) || c.max_positions < 1) std::abort();
    });
    return 0;
}

#ifdef TENON_FUZZ_MAIN
int main() {
    std::string const corpus[]{
        R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":4,"num_attention_heads":8,"vocab_size":128,"intermediate_size":96})",
        R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":4,"num_attention_heads":8,"num_key_value_heads":2,"head_dim":8,"vocab_size":128,"intermediate_size":96,"rope_theta":5e5,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":256},"attention_bias":true,"mlp_bias":true,"hidden_act":"silu"})",
        R"({"tie_word_embeddings":true,"text_config":{"model_type":"llama","hidden_size":64,"num_hidden_layers":4,"num_attention_heads":8,"vocab_size":128,"intermediate_size":96,"rope_parameters":{"full_attention":{"rope_theta":5,"type":"linear","factor":2}}}})",
        R"({"model_type":"qwen3","hidden_size":64,"quantization_config":{"quant_method":"fp8"}})"};
    std::string_view const words[]{"0",
                                   "1",
                                   "-1",
                                   "7",
                                   "257",
                                   "1e999",
                                   "2147483648",
                                   "1.5",
                                   "64.0",
                                   "true",
                                   "false",
                                   "null",
                                   "[]",
                                   "{}",
                                   "\"\"",
                                   "\"linear\"",
                                   "\"dynamic\"",
                                   "\"yarn\"",
                                   "\"type\"",
                                   "\"rope_type\"",
                                   "\"factor\"",
                                   "\"rope_scaling\"",
                                   "\"rope_parameters\"",
                                   "\"text_config\"",
                                   "\"model_type\"",
                                   "\"head_dim\"",
                                   "\"sliding_window\"",
                                   ",",
                                   ":",
                                   "}",
                                   "{"};
    return fuzz::run(LLVMFuzzerTestOneInput, corpus, words, 200'000);
}
#endif
