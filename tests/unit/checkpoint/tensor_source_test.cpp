// Slices of a model's tensors against the definition, element by element: floats, codes with scales, parts of fused tensors.
// SPDX-License-Identifier: Apache-2.0
#include "model_files.hpp"

#include <tenon/checkpoint/tensor_source.hpp>
#include <tenon/core/convert.hpp>

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

using namespace checkpoint_test;
using namespace tenon::checkpoint;
using tenon::adapter_id;
using tenon::dtype;
using tenon::model_config;
using tenon::role;
using tenon::share;
using tenon::tensor;

namespace {

/// A model's files, open.
struct opened {
    model_config config;
    block_scaling scaling;
    scratch_folder scratch{};
    folder files;
    tensor_source source;

    opened(model_config const& c, dtype type, block_scaling s = {}, expert_layout layout = expert_layout::apart)
        : config(c), scaling(s), files((model_files(c, type, s, layout).write(scratch), scratch.path())), source(files, config, scaling) {
        check_inventory(files, config, scaling);
    }
};

float load(std::byte const* from, dtype type) {
    return type == dtype::f32 ? tenon::load_f32(from) : type == dtype::bf16 ? tenon::load_bf16(from) : tenon::load_f16(from);
}

/// 1-4-3 with bias 7. Source: Micikevicius et al. 2022, "FP8 formats for deep learning", section 3.
double code_by_definition(unsigned code) {
    int const exponent = static_cast<int>(code >> 3U & 15U), fraction = static_cast<int>(code & 7U);
    double const size = (code & 127U) == 127U ? std::nan("")
                        : exponent == 0       ? std::ldexp(fraction, -9)
                                              : std::ldexp(8 + fraction, exponent - 10);
    return code >= 128U ? -size : size;
}

/// Rows of a file tensor, those of stacked matrices one after the other.
std::int64_t rows_in(tensor_view const& t) { return t.shape.size() == 3 ? t.shape[0] * t.shape[1] : t.shape[0]; }

/// Element (row, column) of a file tensor: floats as they are, codes times the scale of their block in double, then rounded.
float element(opened const& o, std::string const& name, int row, int column) {
    tensor_view const* const t = o.files.find(name);
    std::int64_t const at = t->shape.size() > 1 ? row * t->shape.back() + column : row;
    if (t->type != dtype::f8_e4m3) return load(t->data.data() + at * tenon::bytes_of(t->type), t->type);
    tensor_view const* const s = o.files.find(name + "_scale_inv");
    std::int64_t const block = row / o.scaling.rows * s->shape[1] + column / o.scaling.columns;
    return static_cast<float>(code_by_definition(std::to_integer<unsigned>(t->data[static_cast<std::size_t>(at)])) *
                              static_cast<double>(tenon::load_f32(s->data.data() + 4 * block)));
}

bool same(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

/// The values of a slice, row by row, from bands that follow each other.
std::vector<float> read(opened const& o, tensor const& t, int layer, share rows, share columns, int expert = 0) {
    std::vector<float> values;
    bool const codes = o.files.find(o.source.name_of(t, layer, expert))->type == dtype::f8_e4m3;
    int next = 0, bands = 0;
    o.source.read(t, layer, expert, rows, columns, [&](int first, int count, std::byte const* from, std::ptrdiff_t stride, dtype type) {
        CHECK(first == next);
        CHECK(count > 0);
        CHECK(type == o.source.type_of(t, layer));
        if (codes) CHECK(count <= tensor_source::band_rows);
        for (int i = 0; i < count; ++i)
            for (int j = 0; j < columns.size(); ++j) values.push_back(load(from + i * stride + j * tenon::bytes_of(type), type));
        next += count;
        ++bands;
    });
    CHECK(next == rows.size());
    // Floats come as many whole bands at a time as the bytes that are read at once have room for.
    std::int64_t const row = t.columns * tenon::bytes_of(o.files.find(o.source.name_of(t, layer, expert))->type);
    std::int64_t const most =
        (codes ? 1 : (std::max)(tensor_source::read_bytes / row / tensor_source::band_rows, std::ptrdiff_t{1})) * tensor_source::band_rows;
    CHECK(bands == (rows.size() + most - 1) / most);
    return values;
}

/// How many values differ from the file tensor `name` at these rows of it.
int differing(std::vector<float> const& values, opened const& o, std::string const& name, std::vector<int> const& rows, share columns) {
    REQUIRE(values.size() == rows.size() * static_cast<std::size_t>(columns.size()));
    REQUIRE_MESSAGE(o.files.find(name) != nullptr, name);
    REQUIRE(rows.back() < rows_in(*o.files.find(name)));
    int wrong = 0;
    std::size_t i = 0;
    for (int const row : rows)
        for (int column = columns.begin; column < columns.end; ++column) wrong += !same(values[i++], element(o, name, row, column));
    return wrong;
}

std::vector<int> rows_from(int first, share rows) {
    std::vector<int> all;
    for (int r = rows.begin; r < rows.end; ++r) all.push_back(first + r);
    return all;
}

/// Where the parts of a fused tensor begin, by the published layout: q, k, v; gate, up.
struct published {
    std::string name;
    int first_row = 0;
};
published place(role what, model_config const& c) {
    int const Q = c.kinds[0].attention.heads * c.kinds[0].attention.head_dim,
              K = c.kinds[0].attention.kv_heads * c.kinds[0].attention.head_dim;
    bool const fused = c.adapter == adapter_id::phi3;
    switch (what) {
        case role::embed: return {"model.embed_tokens.weight"};
        case role::head: return {c.tied ? "model.embed_tokens.weight" : "lm_head.weight"};
        case role::final_norm: return {"model.norm.weight"};
        case role::input_norm: return {"input_layernorm.weight"};
        case role::post_norm: return {"post_attention_layernorm.weight"};
        case role::q: return fused ? published{"self_attn.qkv_proj.weight", 0} : published{"self_attn.q_proj.weight"};
        case role::k: return fused ? published{"self_attn.qkv_proj.weight", Q} : published{"self_attn.k_proj.weight"};
        case role::v: return fused ? published{"self_attn.qkv_proj.weight", Q + K} : published{"self_attn.v_proj.weight"};
        case role::o: return {"self_attn.o_proj.weight"};
        case role::gate: return fused ? published{"mlp.gate_up_proj.weight", 0} : published{"mlp.gate_proj.weight"};
        case role::up: return fused ? published{"mlp.gate_up_proj.weight", c.kinds[0].ffn.width} : published{"mlp.up_proj.weight"};
        case role::down: return {"mlp.down_proj.weight"};
        case role::q_bias: return {"self_attn.q_proj.bias"};
        case role::k_bias: return {"self_attn.k_proj.bias"};
        case role::v_bias: return {"self_attn.v_proj.bias"};
        case role::o_bias: return {"self_attn.o_proj.bias"};
        case role::gate_bias: return {"mlp.gate_proj.bias"};
        case role::up_bias: return {"mlp.up_proj.bias"};
        case role::down_bias: return {"mlp.down_proj.bias"};
        case role::q_norm: return {"self_attn.q_norm.weight"};
        case role::k_norm: return {"self_attn.k_norm.weight"};
        case role::router: return {c.adapter == adapter_id::mixtral ? "block_sparse_moe.gate.weight" : "mlp.gate.weight"};
        default: return {};
    }
}
/// Expert by expert, or in the two stacked tensors.
published place_of_expert(role what, int expert, model_config const& c, expert_layout layout) {
    bool const numbered = c.adapter == adapter_id::mixtral, back = what == role::expert_down;
    std::string const at = std::string(numbered ? "block_sparse_moe" : "mlp") + ".experts.";
    int const J = c.kinds[0].experts.width;
    if (layout == expert_layout::stacked && back) return {at + "down_proj", expert * c.hidden};
    if (layout == expert_layout::stacked) return {at + "gate_up_proj", 2 * J * expert + (what == role::expert_up ? J : 0)};
    std::string const name = back ? (numbered ? "w2" : "down_proj") : what == role::expert_up ? (numbered ? "w3" : "up_proj") : (numbered ? "w1" : "gate_proj");
    return {at + std::to_string(expert) + "." + name + ".weight"};
}
published place(tensor const& t, int layer, model_config const& c, int expert = 0, expert_layout layout = expert_layout::apart) {
    published p = t.is_of_expert() ? place_of_expert(t.what, expert, c, layout) : place(t.what, c);
    if (t.what != role::embed && t.what != role::final_norm && t.what != role::head)
        p.name = "model.layers." + std::to_string(layer) + "." + p.name;
    return p;
}

/// Reads a slice and compares it with the file; returns how many values are wrong.
int wrong_values(opened const& o, tensor const& t, int layer, share rows, share columns) {
    int wrong = 0;
    for (int e = 0; e < t.experts; ++e) {
        published const p = place(t, layer, o.config, e, o.source.layout());
        CHECK(o.source.name_of(t, layer, e) == p.name);
        wrong += differing(read(o, t, layer, rows, columns, e), o, p.name, rows_from(p.first_row, rows), columns);
    }
    return wrong;
}

share random_share(support::random_bits& random, int n) {
    int const begin = random.below(n);
    return {begin, begin + 1 + random.below(n - begin)};
}

/// Extents that no block of 3 x 5 or 128 x 128 divides, and matrices with more rows than a band: H 140, Q 60, K 20, F 150, V 131.
model_config ragged(adapter_id family) {
    model_config c = small(family);
    c.hidden = 140;
    c.vocab = 131;
    c.kinds[0].attention.heads = 6;
    c.kinds[0].attention.head_dim = 10;
    c.kinds[0].ffn.width = 150;
    return c;
}

constexpr std::array every_family{adapter_id::llama, adapter_id::mistral, adapter_id::qwen2,    adapter_id::qwen3,
                                  adapter_id::phi3,  adapter_id::mixtral, adapter_id::qwen3_moe};
constexpr std::array every_type{dtype::f32, dtype::bf16, dtype::f16, dtype::f8_e4m3};
}  // namespace

TEST_CASE("a code is its value times the scale of its block, in whatever slice it is read") {
    support::random_bits random(1);
    for (block_scaling const scaling : {block_scaling{1, 1}, {3, 5}, {128, 128}, {1, 128}, {64, 1}, {2'147'483'647, 2'147'483'647}})
        for (adapter_id const family : {adapter_id::qwen3, adapter_id::phi3}) {
            CAPTURE(scaling.rows);
            opened const o(ragged(family), dtype::f8_e4m3, scaling);
            for (tensor const& t : lowered(o.config)) {
                if (!t.is_matrix()) continue;
                CHECK(o.source.type_of(t, 1) == dtype::f32);
                CHECK(wrong_values(o, t, 1, {0, t.rows}, {0, t.columns}) == 0);
                for (int i = 0; i < 6; ++i)
                    CHECK(wrong_values(o, t, 0, random_share(random, t.rows), random_share(random, t.columns)) == 0);
            }
        }
}

TEST_CASE("a band is 32 rows, the last one what is left") {
    opened const o(ragged(adapter_id::llama), dtype::f8_e4m3, {3, 5});
    for (tensor const& t : lowered(o.config))
        if (t.what == role::gate)
            for (int const rows : {1, 31, 32, 33, 64, 65, 127})
                for (int const begin : {0, 1, 23}) CHECK(wrong_values(o, t, 0, {begin, begin + rows}, {7, 12}) == 0);
}

TEST_CASE("a slice of more bytes than are read at once is read in several goes, in whole bands") {
    for (dtype const type : {dtype::f32, dtype::f8_e4m3}) {
        model_config c = small(adapter_id::llama);  // 8 columns
        c.layers = 1;
        c.kinds[0].ffn.width = static_cast<int>(tensor_source::read_bytes / (8 * tenon::bytes_of(type))) + 777;
        opened const o(c, type, {128, 128});
        for (tensor const& t : lowered(c)) {
            if (t.what == role::up) CHECK(wrong_values(o, t, 0, {3, t.rows}, {0, t.columns}) == 0);
            if (t.what == role::down) CHECK(wrong_values(o, t, 0, {0, t.rows}, {t.columns - 5, t.columns}) == 0);
        }
    }
}

TEST_CASE("every tensor of every family is read in the file's own type, whole and by rows and columns") {
    support::random_bits random(2);
    for (adapter_id const family : every_family)
        for (bool const tied : {false, true})
            for (dtype const type : every_type) {
                model_config c = small(family, tied);
                if (family == adapter_id::llama)
                    c.kinds[0].attention.qkv_bias = c.kinds[0].attention.output_bias = c.kinds[0].ffn.bias = true;
                opened const o(c, type, {3, 5});
                for (tensor const& t : lowered(c))
                    for (int layer = 0; layer < c.layers; ++layer) {
                        CHECK(o.source.type_of(t, layer) == (type == dtype::f8_e4m3 ? dtype::f32 : type));
                        CHECK(wrong_values(o, t, layer, {0, t.rows}, {0, t.columns}) == 0);
                        CHECK(wrong_values(o, t, layer, random_share(random, t.rows), random_share(random, t.columns)) == 0);
                    }
            }
}

TEST_CASE("stacked experts are read expert by expert, whole and by rows and columns") {
    support::random_bits random(4);
    for (adapter_id const family : {adapter_id::mixtral, adapter_id::qwen3_moe})
        for (dtype const type : {dtype::f32, dtype::bf16, dtype::f16}) {
            opened const o(small(family), type, {}, expert_layout::stacked);
            CHECK(o.source.layout() == expert_layout::stacked);
            for (tensor const& t : lowered(o.config)) {
                CHECK(wrong_values(o, t, 1, {0, t.rows}, {0, t.columns}) == 0);
                CHECK(wrong_values(o, t, 0, random_share(random, t.rows), random_share(random, t.columns)) == 0);
            }
        }
}

TEST_CASE("each tensor keeps its own type in a checkpoint that mixes them") {
    model_config const c = small(adapter_id::qwen3);
    scratch_folder const scratch;
    model_files files(c, dtype::f8_e4m3, {3, 5});
    files.put("model.layers.0.self_attn.k_norm.weight", dtype::bf16, {6});
    files.put("lm_head.weight", dtype::f16, {13, 8});
    files.tensors.erase("lm_head.weight_scale_inv");
    files.write_shards(scratch, 4);
    folder const opened_files(scratch.path());
    check_inventory(opened_files, c, {3, 5});
    tensor_source const source(opened_files, c, {3, 5});
    for (tensor const& t : lowered(c)) {
        if (t.what == role::k_norm) CHECK((source.type_of(t, 0) == dtype::bf16 && source.type_of(t, 1) == dtype::f32));
        if (t.what == role::head) CHECK(source.type_of(t, 0) == dtype::f16);
        if (t.what == role::embed) CHECK(source.type_of(t, 0) == dtype::f32);
    }
}

// A rank's rows of q, k, v are those of its heads, each in its part; a plain cut of the fused rows would mix the parts.
TEST_CASE("ranks take their heads of each part of a fused tensor, and nothing else") {
    struct heads_of {
        int heads, kv_heads;
    };
    for (auto const [heads, kv_heads] : {heads_of{4, 4}, {4, 2}, {4, 1}, {6, 2}, {7, 3}})
        for (dtype const type : every_type) {
            model_config c = ragged(adapter_id::phi3);
            c.hidden = 24;
            c.kinds[0].attention.heads = heads;
            c.kinds[0].attention.kv_heads = kv_heads;
            c.kinds[0].ffn.width = 50;
            opened const o(c, type, {16, 7});  // blocks cross from q to k to v, and from gate to up
            int const D = c.kinds[0].attention.head_dim, Q = heads * D, K = kv_heads * D, F = c.kinds[0].ffn.width;
            for (int ranks = 1; ranks <= 4; ++ranks)
                for (tensor const& t : lowered(c, ranks))
                    for (int rank = 0; rank < ranks; ++rank) {
                        // floor(i R / n) owns unit i of n; fewer KV heads than ranks are repeated on neighbours.
                        std::vector<int> rows;
                        auto const take = [&](int units, int width, int first) {
                            for (int u = 0; u < units; ++u)
                                if (units >= ranks || t.what == role::q ? u * ranks / units == rank : rank * units / ranks == u)
                                    for (int i = 0; i < width; ++i) rows.push_back(first + u * width + i);
                        };
                        if (t.what == role::q) take(heads, D, 0);
                        if (t.what == role::k) take(kv_heads, D, Q);
                        if (t.what == role::v) take(kv_heads, D, Q + K);
                        if (t.what == role::gate) take(F, 1, 0);
                        if (t.what == role::up) take(F, 1, F);
                        if (rows.empty()) continue;
                        CAPTURE(ranks);
                        CAPTURE(rank);
                        share const columns = t.columns_of(rank);
                        CHECK(columns == share{0, 24});
                        CHECK(differing(read(o, t, 1, t.rows_of(rank), columns), o, place(t, 1, c).name, rows, columns) == 0);
                    }
        }
}

TEST_CASE("every slice of every rank is the file's, by rows and, where a stage reduces, by columns") {
    for (adapter_id const family : every_family)
        for (dtype const type : every_type)
            for (int const ranks : {2, 4})
                for (tenon::join_kind const join : {tenon::join_kind::gather, tenon::join_kind::reduce}) {
                    model_config c = small(family);
                    (routes(family) ? c.kinds[0].experts.width : c.kinds[0].ffn.width) = 16;
                    c.kinds[0].attention.kv_heads = 4;
                    opened const o(c, type, {3, 5});
                    for (tensor const& t : lowered(c, ranks, join))
                        for (int rank = 0; rank < ranks; ++rank) CHECK(wrong_values(o, t, 1, t.rows_of(rank), t.columns_of(rank)) == 0);
                }
}

namespace {
/// Takes away, while it lives, every page of a file's data that has no byte of these ranges: whoever reads one is ended.
class only_these {
public:
    using range = std::pair<std::byte const*, std::byte const*>;

    only_these(folder const& files, std::vector<range> allowed) {
        auto const address = [](std::byte const* p) { return reinterpret_cast<std::uintptr_t>(p); };
        std::sort(allowed.begin(), allowed.end());
        for (tensor_view const* const t : files.tensors()) {
            begin_ = std::min(begin_, address(t->data.data()) / page_ * page_);
            end_ = std::max(end_, (address(t->data.data() + t->data.size()) + page_ - 1) / page_ * page_);
        }
        protect(PROT_NONE);
        for (auto const& [first, last] : allowed)
            for (std::uintptr_t p = address(first) / page_ * page_; p < address(last); p += page_)
                REQUIRE(::mprotect(reinterpret_cast<void*>(p), page_, PROT_READ) == 0);
    }
    only_these(only_these const&) = delete;
    only_these& operator=(only_these const&) = delete;
    ~only_these() { protect(PROT_READ); }

private:
    void protect(int how) const { CHECK(::mprotect(reinterpret_cast<void*>(begin_), end_ - begin_, how) == 0); }

    std::uintptr_t page_ = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)), begin_ = UINTPTR_MAX, end_ = 0;
};
}  // namespace

TEST_CASE("nothing outside a slice is read") {
    support::random_bits random(3);
    for (adapter_id const family : {adapter_id::llama, adapter_id::phi3})
        for (dtype const type : {dtype::bf16, dtype::f8_e4m3}) {
            model_config c = small(family);
            c.layers = 1;
            c.hidden = 9000;  // a row takes pages
            c.kinds[0].ffn.width = 40;
            opened const o(c, type, {1, 1});
            for (tensor const& t : lowered(c)) {
                if (!t.is_matrix()) continue;
                for (int i = 0; i < 3; ++i) {
                    share const rows = random_share(random, t.rows), columns = random_share(random, t.columns);
                    published const p = place(t, 0, c);
                    std::vector<only_these::range> allowed;
                    for (std::string const& name : {p.name, p.name + "_scale_inv"})
                        if (tensor_view const* const file = o.files.find(name))
                            for (int const row : rows_from(p.first_row, rows)) {
                                std::byte const* const from = file->data.data() + row * file->shape[1] * tenon::bytes_of(file->type);
                                allowed.emplace_back(from + columns.begin * tenon::bytes_of(file->type),
                                                     from + columns.end * tenon::bytes_of(file->type));
                            }
                    std::vector<float> values;
                    {
                        only_these const guard(o.files, std::move(allowed));
                        values = read(o, t, 0, rows, columns);
                    }
                    CHECK(differing(values, o, p.name, rows_from(p.first_row, rows), columns) == 0);
                }
            }
        }
}
