// Any bytes as a config.json: a model that keeps its laws, or a refusal.
// SPDX-License-Identifier: Apache-2.0
#include "mutate.hpp"

#include <tenon/checkpoint/config_json.hpp>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string_view const text = size == 0 ? std::string_view() : std::string_view(reinterpret_cast<char const*>(data), size);
    fuzz::refusing([text] {
        tenon::model_config const c = tenon::checkpoint::read_config(text, "fuzz");
        bool whole = c.layers >= 1 && c.layers <= tenon::most_layers && c.rope.theta > 0 && c.rms_epsilon > 0 && c.max_positions >= 1;
        for (int layer = 0; whole && layer < c.layers; ++layer) {
            tenon::grouped_attention const& a = c.layer(layer).attention;
            whole = a.kv_heads >= 1 && a.heads % a.kv_heads == 0 && a.head_dim % 2 == 0 && a.window >= 0;
        }
        tenon::checkpoint::block_scaling const scaling = tenon::checkpoint::read_block_scaling(text, "fuzz");
        if (!whole || scaling.rows < 0 || (scaling.rows > 0) != (scaling.columns > 0)) std::abort();
    });
    return 0;
}

#ifdef TENON_FUZZ_MAIN
int main(int count, char** arguments) {
    std::string const seeds[]{
        R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":4,"num_attention_heads":8,"vocab_size":128,"intermediate_size":96})",
        R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":4,"num_attention_heads":8,"num_key_value_heads":2,"head_dim":8,"vocab_size":128,"intermediate_size":96,"rope_theta":5e5,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":256},"attention_bias":true,"mlp_bias":true,"hidden_act":"silu"})",
        R"({"tie_word_embeddings":true,"text_config":{"model_type":"llama","hidden_size":64,"num_hidden_layers":4,"num_attention_heads":8,"vocab_size":128,"intermediate_size":96,"rope_parameters":{"full_attention":{"rope_theta":5,"type":"linear","factor":2}}}})",
        R"({"model_type":"mistral","hidden_size":80,"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"vocab_size":130,"intermediate_size":96,"sliding_window":8})",
        R"({"model_type":"qwen2","hidden_size":64,"num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":4,"vocab_size":128,"intermediate_size":40,"use_sliding_window":true,"sliding_window":8,"max_window_layers":2,"use_mrope":false,"rope_parameters":{"rope_type":"default","rope_theta":1e6}})",
        R"({"model_type":"qwen3","hidden_size":96,"num_hidden_layers":3,"num_attention_heads":4,"vocab_size":128,"intermediate_size":160,"attention_bias":true,"use_sliding_window":true,"sliding_window":8,"layer_types":["full_attention","sliding_attention","full_attention"],"quantization_config":{"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,128]}})",
        R"({"model_type":"phi3","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":128,"intermediate_size":40,"sliding_window":2047,"rope_scaling":null,"partial_rotary_factor":1.0,"original_max_position_embeddings":64})"};
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
                                   "\"use_sliding_window\"",
                                   "\"max_window_layers\"",
                                   "\"layer_types\"",
                                   "\"sliding_attention\"",
                                   "\"quantization_config\"",
                                   "\"weight_block_size\"",
                                   "\"mistral\"",
                                   "\"qwen2\"",
                                   "\"qwen3\"",
                                   "\"phi3\"",
                                   ",",
                                   ":",
                                   "}",
                                   "{"};
    return fuzz::run(count, arguments, LLVMFuzzerTestOneInput, seeds, words, 200'000);
}
#endif
