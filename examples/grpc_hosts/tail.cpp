// The last stage of the model as a gRPC service: it keeps the sequences' states, and answers bundles with tokens. It serves whoever has a
// certificate of its authority, and nobody else.
// SPDX-License-Identifier: Apache-2.0
//
//   grpc_tail MODEL_DIRECTORY ADDRESS:PORT CERTIFICATES      prints the port (port 0: any that is free); serves until its input ends
#include <tenon/stage_host.hpp>

#include "hosts.hpp"
#include "messages.hpp"
#include "stage.grpc.pb.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace tenon;
using namespace grpc_hosts;

class tail_service final : public wire::Tail::Service {
    using clock = std::chrono::steady_clock;
    static constexpr std::size_t most_sequences = 64;
    static constexpr std::chrono::seconds idle{60};  ///< after which a sequence makes room for another: its caller may be gone

public:
    explicit tail_service(std::string const& directory) : host_(stage_host<split, 2>::load(directory)) {}

    grpc::Status Forward(grpc::ServerContext* context, wire::ForwardRequest const* in, wire::ForwardReply* out) override {
        return answer(*context, [&] {
            std::vector<state> fresh;
            std::vector<state*> states;
            make_room(in->sequences());
            fresh.reserve(static_cast<std::size_t>(in->sequences_size()));
            for (std::uint64_t const number : in->sequences())
                states.push_back(number == 0 ? &fresh.emplace_back(host_.make_state()) : &open(number).sequence);
            boundary::tail_output const tail = host_.forward(view_of(in->bundle()), states, {.sample = sampling{}});
            auto const now = clock::now();
            auto made = fresh.begin();
            for (std::uint64_t number : in->sequences()) {
                if (number == 0) sequences_.emplace(number = next_++, kept{std::move(*made++), now});
                open(number).used = now;
                out->add_sequences(number);
            }
            out->mutable_tokens()->Add(tail.chosen.begin(), tail.chosen.end());
        });
    }

    grpc::Status Release(grpc::ServerContext* context, wire::ReleaseRequest const* in, wire::ReleaseReply*) override {
        return answer(*context, [&] {
            for (std::uint64_t const number : in->sequences()) sequences_.erase(number);
        });
    }

private:
    struct kept {
        state sequence;
        clock::time_point used;
    };

    /// One call at a time, as a stage serves them; none whose caller has gone while it waited.
    template <class Call>
    grpc::Status answer(grpc::ServerContext& context, Call call) {
        std::lock_guard const lock(one_at_a_time_);
        if (context.IsCancelled()) return {grpc::StatusCode::CANCELLED, "the caller waits no longer"};
        try {
            call();
            return grpc::Status::OK;
        } catch (refusal const& r) { return {grpc::StatusCode::FAILED_PRECONDITION, r.what()}; } catch (std::exception const& e) {
            return {grpc::StatusCode::INTERNAL, e.what()};
        }
    }

    kept& open(std::uint64_t number) {
        auto const found = sequences_.find(number);
        if (found == sequences_.end()) throw refusal("sequence_is_open", "sequence " + std::to_string(number) + " is not, or no longer");
        return found->second;
    }

    template <class Numbers>
    void make_room(Numbers const& wanted) {
        std::size_t fresh = 0;
        for (std::uint64_t const number : wanted) fresh += number == 0;
        if (fresh == 0) return;
        std::erase_if(sequences_, [now = clock::now()](auto const& s) { return now - s.second.used > idle; });
        if (sequences_.size() + fresh > most_sequences)
            throw refusal("sequences_fit", std::to_string(fresh) + " more than the " + std::to_string(sequences_.size()) +
                                               " that are open; " + std::to_string(most_sequences) + " together would do");
    }

    std::mutex one_at_a_time_;
    stage_host<split, 2> host_;
    std::map<std::uint64_t, kept> sequences_;
    // From a random number on, so that those of a tail that was there before are not taken for its own.
    std::uint64_t next_ = (std::uint64_t{std::random_device{}()} << 31U) + 1;
};

int main(int argc, char** argv) try {
    if (argc != 4) return std::cerr << "usage: grpc_tail MODEL_DIRECTORY ADDRESS:PORT CERTIFICATES\n", 2;
    tail_service service(argv[1]);
    identity const own(argv[3]);
    grpc::SslServerCredentialsOptions tls(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    tls.pem_root_certs = own.authority;
    tls.pem_key_cert_pairs.push_back({own.key, own.certificate});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(argv[2], grpc::SslServerCredentials(tls), &port);
    builder.RegisterService(&service);
    auto const server = builder.BuildAndStart();
    if (!server || port == 0) return std::cerr << argv[2] << " cannot be served\n", 1;
    std::cout << port << std::endl;
    while (std::cin.get() != std::char_traits<char>::eof()) {}
    server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    return 0;
} catch (std::exception const& e) {
    std::cerr << e.what() << '\n';
    return 1;
}
