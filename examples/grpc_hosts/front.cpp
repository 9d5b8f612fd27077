// The first two stages of the model, and the last one behind gRPC: no call to it outlives its deadline, and what it refuses is said here by
// the name that it has there.
// SPDX-License-Identifier: Apache-2.0
//
//   grpc_front MODEL_DIRECTORY ADDRESS:PORT CERTIFICATES DEADLINE_MS [past-the-middle]
//   grpc_front MODEL_DIRECTORY                                                              the unsplit model, to compare with
//
// A line of input is one batch: prompts, a tab between them. Each gets a line of output, the token ids that follow; or all of them get one
// line, `failed CODE: MESSAGE`. `past-the-middle` hands the tail what the middle should have had.
#include <tenon/stage_host.hpp>

#include "hosts.hpp"
#include "messages.hpp"
#include "stage.grpc.pb.h"

#include <grpcpp/grpcpp.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using namespace tenon;
using namespace grpc_hosts;

using batch_tokens = std::vector<std::vector<token_id>>;
constexpr int new_tokens = 24;

/// A call that did not come to its end: "CODE: MESSAGE".
struct call_failed : std::runtime_error {
    explicit call_failed(grpc::Status const& s) : std::runtime_error(name_of(s.error_code()) + ": " + s.error_message()) {}

private:
    static std::string name_of(grpc::StatusCode code) {
        constexpr std::array<std::string_view, 17> names{
            "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
            "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
            "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
            "DATA_LOSS", "UNAUTHENTICATED"};
        auto const at = static_cast<std::size_t>(code);
        return at < names.size() ? std::string(names[at]) : std::to_string(at);
    }
};

/// The tail, as its caller sees it.
class remote_tail {
public:
    remote_tail(std::string const& address, identity const& own, std::chrono::milliseconds deadline) : deadline_(deadline) {
        grpc::ChannelArguments how;
        how.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
        stub_ =
            wire::Tail::NewStub(grpc::CreateCustomChannel(address, grpc::SslCredentials({own.authority, own.key, own.certificate}), how));
    }

    /// The token after each sequence of a bundle. `sequences` (B) are the tail's numbers; 0 is a new one, and gets its number.
    std::vector<token_id> forward(boundary::bundle_view const& b, std::vector<std::uint64_t>& sequences) {
        wire::ForwardRequest in;
        wire::ForwardReply out;
        in.mutable_sequences()->Add(sequences.begin(), sequences.end());
        *in.mutable_bundle() = message_of(b);
        within_deadline([&](grpc::ClientContext* context) { return stub_->Forward(context, in, &out); });
        auto const expected = static_cast<int>(sequences.size());
        if (out.sequences_size() != expected || out.tokens_size() != expected) throw std::runtime_error("the tail answers for others");
        sequences.assign(out.sequences().begin(), out.sequences().end());
        return {out.tokens().begin(), out.tokens().end()};
    }

    void release(std::vector<std::uint64_t> const& sequences) {
        wire::ReleaseRequest in;
        wire::ReleaseReply out;
        in.mutable_sequences()->Add(sequences.begin(), sequences.end());
        within_deadline([&](grpc::ClientContext* context) { return stub_->Release(context, in, &out); });
    }

private:
    template <class Call>
    void within_deadline(Call call) {
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + deadline_);
        if (grpc::Status const s = call(&context); !s.ok()) throw call_failed(s);
    }

    std::unique_ptr<wire::Tail::Stub> stub_;
    std::chrono::milliseconds deadline_;
};

/// Both stages of this program and that of the other one, over a batch of sequences.
class split_model {
public:
    split_model(std::string const& directory, remote_tail& tail, bool past_the_middle)
        : head_(stage_host<split, 0>::load(directory)),
          middle_(stage_host<split, 1>::load(directory)),
          tail_(&tail),
          past_the_middle_(past_the_middle) {}

    /// Where a call fails, the states here vanish with the exception, and the tail's after a while.
    batch_tokens generate(batch_tokens const& prompts) {
        batch_tokens fresh = prompts, made(prompts.size());
        std::vector<state> at_head, at_middle;
        std::vector<state*> middle_states;
        for (std::size_t i = 0; i < prompts.size(); ++i) {
            at_head.push_back(head_.make_state());
            at_middle.push_back(middle_.make_state());
        }
        for (state& s : at_middle) middle_states.push_back(&s);
        std::vector<std::uint64_t> numbers(prompts.size(), 0);
        for (int n = 0; n < new_tokens; ++n) {
            std::vector<feed> feeds;
            for (std::size_t i = 0; i < fresh.size(); ++i) feeds.push_back({&at_head[i], fresh[i]});
            boundary::bundle handed = head_.forward(feeds);
            if (!past_the_middle_) handed = middle_.forward(handed, middle_states);
            std::vector<token_id> const next = tail_->forward(handed, numbers);
            for (std::size_t i = 0; i < next.size(); ++i) {
                made[i].push_back(next[i]);
                fresh[i] = {next[i]};
            }
        }
        tail_->release(numbers);
        return made;
    }

private:
    stage_host<split, 0> head_;
    stage_host<split, 1> middle_;
    remote_tail* tail_;
    bool past_the_middle_;
};

/// The exit status: 1 where a batch has failed.
template <class Generate>
int answer_lines(Generate generate) {
    int status = 0;
    for (std::string line; std::getline(std::cin, line);) {
        batch_tokens prompts;
        std::istringstream parts(line);
        for (std::string prompt; std::getline(parts, prompt, '\t');) prompts.push_back(tokens_of(prompt));
        try {
            for (std::vector<token_id> const& ids : generate(prompts)) {
                for (std::size_t i = 0; i < ids.size(); ++i) std::cout << (i == 0 ? "" : ",") << ids[i];
                std::cout << std::endl;
            }
        } catch (std::exception const& e) {
            std::cout << "failed " << e.what() << std::endl;
            status = 1;
        }
    }
    return status;
}

int main(int argc, char** argv) try {
    bool const past_the_middle = argc == 6 && std::string_view(argv[5]) == "past-the-middle";
    if (argc != 2 && argc != 5 && !past_the_middle)
        return std::cerr << "usage: grpc_front MODEL_DIRECTORY [ADDRESS:PORT CERTIFICATES DEADLINE_MS [past-the-middle]]\n", 2;
    if (argc == 2) {
        auto whole = causal_lm<split>::load(argv[1]);
        return answer_lines([&](batch_tokens const& prompts) {
            batch_tokens made;
            for (std::vector<token_id> const& prompt : prompts) {
                std::vector<token_id> const all = whole.generate(prompt, {.max_new_tokens = new_tokens});
                made.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(prompt.size()), all.end());
            }
            return made;
        });
    }
    remote_tail tail(argv[2], identity(argv[3]), std::chrono::milliseconds(std::stoi(argv[4])));
    split_model model(argv[1], tail, past_the_middle);
    return answer_lines([&](batch_tokens const& prompts) { return model.generate(prompts); });
} catch (std::exception const& e) {
    std::cerr << e.what() << '\n';
    return 1;
}
