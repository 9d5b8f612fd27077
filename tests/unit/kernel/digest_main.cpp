// Prints one digest per kernel for the instruction set named by the first argument (the best one without). Every build, flag, compiler and
// architecture must print the same digests.
// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

#include <cstdio>

namespace {
using namespace reference;

/// FNV-1a over 32-bit words, every NaN being 0x7fc00000.
void show(char const* name, floats const& numbers) {
    std::uint64_t h = 1469598103934665603ull;
    for (float x : numbers) h = (h ^ bits(x)) * 1099511628211ull;
    std::printf("%-20s %016llx\n", name, static_cast<unsigned long long>(h));
}

void append(floats& all, floats const& more) { all.insert(all.end(), more.begin(), more.end()); }
}  // namespace

int main(int argc, char** argv) {
    isa which = tenon::kernel::best_isa();
    bool found = argc < 2;
    for (isa i : {isa::portable, isa::avx2, isa::avx512, isa::neon})
        if (argc > 1 && name_of(i) == argv[1]) {
            which = i;
            found = true;
        }
    if (!found || !tenon::kernel::supported(which)) {
        std::fprintf(stderr, "no such instruction set here\n");
        return 77;
    }
    auto const& t = tenon::kernel::table_of(which);
    random_numbers random;
    for (panel_format format : {panel_format::f32, panel_format::bf16, panel_format::bf16_pair}) {
        floats all;
        for (int columns : {1, 56, 640, 1024})
            for (int rows : {1, 2, 5, 16, 31}) {
                int const outputs = 131;
                matrix const w(random.row(at(outputs * columns)), outputs, columns, tenon::segments_of(columns, 1), format);
                append(all, run(which, w, random.row(at(rows * columns)), rows));
            }
        show(format == panel_format::f32 ? "matmul f32" : format == panel_format::bf16 ? "matmul bf16" : "matmul bf16 pairs", all);
    }
    floats x;
    for (int i = 0; i < 20000; ++i) x.push_back((static_cast<float>(i) / 20000.0f - 0.5f) * 200.0f);
    x[0] = std::numeric_limits<float>::infinity();
    x[1] = -x[0];
    x[2] = std::nanf("");
    x[3] = 1e-42f;
    floats y(x.size()), up = random.row(x.size());
    t.exp(y.data(), x.data(), x.size());
    show("exp", y);
    t.swiglu(y.data(), x.data(), up.data(), x.size());
    show("swiglu", y);
    t.add(y.data(), up.data(), y.size());
    show("add", y);
    floats norm, soft;
    for (int n : {1, 31, 100, 2048}) {
        floats const row = random.row(at(n), n == 100 ? 1e-21f : 3.0f), gain = random.row(at(n));
        floats out(row.size());
        t.rms_norm(out.data(), n, row.data(), n, gain.data(), n, n == 100 ? 0.0f : 1e-5f, 1);
        append(norm, out);
        t.softmax(out.data(), row.data(), row.size());
        append(soft, out);
    }
    show("rms_norm", norm);
    show("softmax", soft);
    floats tables, turned;
    for (tenon::rope const& law : {tenon::rope{}, tenon::rope{500000.0, tenon::rope_scaling::llama3, 8.0, 1.0, 4.0, 8192},
                                   tenon::rope{10000.0, tenon::rope_scaling::linear, 4.0, 1.0, 4.0, 0}})
        for (int head_dim : {8, 128})
            for (std::int64_t position : {0, 1, 63, 4095, 131071, 1000003}) {
                floats c(at(head_dim / 2)), s(c.size()), q = random.row(at(3 * head_dim));
                tenon::kernel::rope_frequencies(law, head_dim).row(position, c.data(), s.data());
                append(tables, c);
                append(tables, s);
                t.rope(q.data(), 0, 1, 3, head_dim, c.data(), s.data());
                append(turned, q);
            }
    show("rope tables", tables);
    show("rope", turned);
    floats attended;
    struct shape { int heads, kv_heads, head_dim, positions; std::int64_t window; };
    for (shape s : {shape{4, 2, 64, 150, 0}, shape{7, 1, 17, 140, 50}, shape{2, 2, 128, 66, 0}, shape{3, 3, 8, 70, 64}}) {
        cache kv(s.kv_heads, s.head_dim, s.positions, 0.0f);
        floats const k = random.row(at(s.positions * s.kv_heads * s.head_dim)), v = random.row(k.size());
        kv.store(0, s.positions, k.data(), v.data());
        append(attended, kv.attend(which, random.row(at(s.positions * s.heads * s.head_dim), 4.0f).data(), s.heads, s.positions, 0, s.window, 0.125f));
    }
    show("attention", attended);
    floats routed, summed;
    struct router { int count, chosen, groups, chosen_groups; tenon::expert_scoring scoring; };
    for (router r : {router{8, 2, 1, 1, tenon::expert_scoring::softmax}, router{60, 4, 1, 1, tenon::expert_scoring::softmax},
                     router{100, 17, 1, 1, tenon::expert_scoring::sigmoid}, router{256, 8, 8, 4, tenon::expert_scoring::sigmoid}}) {
        tenon::routed_experts how;
        how.count = r.count;
        how.chosen = r.chosen;
        how.scoring = r.scoring;
        how.groups = r.groups;
        how.chosen_groups = r.chosen_groups;
        how.normalised = true;
        how.correction = how.groups > 1;
        how.sum_epsilon = how.groups > 1 ? 1e-20 : 0.0;
        how.scale = how.groups > 1 ? 2.446 : 1.0;
        int const rows = 7, n = 203;
        std::vector<std::int32_t> experts(at(rows * r.chosen));
        floats scores = random.row(at(rows * r.count), 4.0f), gates(experts.size()), scratch(at(r.count)), out(at(n));
        scores[at(r.count)] = std::nanf("");  // softmax leaves its row nothing else
        floats const correction = random.row(at(r.count));
        routed.push_back(static_cast<float>(
            tenon::kernel::route({&how, scores.data(), correction.data(), scratch.data(), experts.data(), gates.data(), rows}, t.exp)));
        routed.insert(routed.end(), experts.begin(), experts.end());
        append(routed, scores);
        append(routed, gates);
        for (int row = 0; row < rows; ++row) {
            floats const outputs = random.row(at(r.chosen * n), row == 5 ? 1e-38f : 3.0f);
            std::vector<float const*> parts;
            for (int j = 0; j < r.chosen; ++j) parts.push_back(outputs.data() + at(j * n));
            t.combine({out.data(), parts.data(), gates.data() + row * r.chosen, experts.data() + row * r.chosen, r.chosen, r.count, at(n)});
            append(summed, out);
        }
    }
    show("routing", routed);
    show("combine", summed);
    floats quantised;
    for (int columns : {32, 640, 1024})
        for (int rows : {1, 2, 5, 16, 31}) {
            int const outputs = 131;
            matrix const w(random.row(at(outputs * columns)), outputs, columns, tenon::segments_of(columns, 32), panel_format::q8);
            append(quantised, run(which, w, random.row(at(rows * columns)), rows));
        }
    show("matmul q8", quantised);
    return 0;
}
