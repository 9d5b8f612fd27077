// The threads that work for one rank, as a backend sees them: somebody who runs parts of a piece of work at the same time. Knows no thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>

namespace tenon::inline v0::device {

/// Runs a piece of work in `size()` parts, part 0 on the caller's thread, and returns when all are done, or throws what the lowest part
/// threw. What is split among parts are rows, outputs, heads and blocks of keys, never a sum: how many parts there are changes no bit.
class crew {
public:
    /// What the parts run. An interface, not a std::function, which would cost a user's file a third of a second.
    struct work {
        virtual void run(int part) = 0;

    protected:
        ~work() = default;
    };

    virtual int size() const noexcept { return 1; }
    virtual void run(work& w) { w.run(0); }

    /// Calls `part(p)` for p = 0 .. size() - 1.
    template <class Part>
    void each(Part part) {
        struct task final : work {
            explicit task(Part& p) : part(&p) {}
            void run(int p) override { (*part)(p); }
            Part* part;
        } t(part);
        if (size() == 1)
            t.run(0);
        else
            run(t);
    }
    /// Calls `range(begin, end)` for ranges, none of them empty, that cover 0 .. count - 1 in order; on the caller's thread alone where there
    /// are fewer than `worth_it`.
    template <class Range>
    void share(std::ptrdiff_t count, std::ptrdiff_t worth_it, Range range) {
        if (count <= 0) return;
        std::ptrdiff_t const parts = size();
        if (parts == 1 || count < worth_it) return range(std::ptrdiff_t{0}, count);
        each([&](int p) {
            std::ptrdiff_t const begin = count * p / parts, end = count * (p + 1) / parts;
            if (begin < end) range(begin, end);
        });
    }

protected:
    ~crew() = default;
};

/// Nobody but the caller.
class no_crew final : public crew {};

}  // namespace tenon::inline v0::device
