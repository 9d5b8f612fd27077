// A tool's life as one of several MPI processes: all of them compute, the first alone prints and writes.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tool_main.hpp"

#if defined(TENON_TOOLS_MPI)
#include <tenon/runtime/mpi.hpp>
#endif

#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace tools {

#if defined(TENON_TOOLS_MPI)
class mpi_session {
public:
    mpi_session() {
        int provided = 0;
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);  // threads that work for a rank call nothing of MPI
        int own = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &own);
        speaks() = own == 0;
        if (own != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    mpi_session(mpi_session const&) = delete;
    mpi_session& operator=(mpi_session const&) = delete;
    ~mpi_session() { MPI_Finalize(); }
    [[noreturn]] void stop(char const* why) const {
        std::cerr << one_line(why) << '\n';
        MPI_Abort(MPI_COMM_WORLD, 1);
        std::abort();
    }
};
#else
class mpi_session {
public:
    mpi_session() { refuse("runtime_is_available", "this tool was built without MPI; sequential, threads or processes would do"); }
    void stop(char const*) const {}
};
#endif

}  // namespace tools
