// A file that a tool was asked to write. Opened before the work, so that a path that cannot be written is known then; what was made there
// and never finished is removed.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>

namespace tools {

class output_file {
public:
    /// `option` names the file's option in messages.
    output_file(std::string option, std::string path) : option_(std::move(option)), path_(std::move(path)) {
        struct ::stat facts {};
        made_ = ::lstat(path_.c_str(), &facts) != 0;
        open(std::ios::app);
    }
    output_file(output_file const&) = delete;
    output_file& operator=(output_file const&) = delete;
    ~output_file() {
        if (made_ && !finished_) std::remove(path_.c_str());
    }

    /// Empties the file and gives it as a stream.
    std::ostream& begin() {
        stream_.close();
        open(std::ios::trunc);
        return stream_;
    }
    void end() {
        errno = 0;
        stream_.close();
        if (!stream_) fail();
        finished_ = true;
    }

private:
    void open(std::ios::openmode mode) {
        errno = 0;
        stream_.open(path_, std::ios::binary | std::ios::out | mode);
        if (!stream_) fail();
    }
    [[noreturn]] void fail() const {
        throw std::runtime_error(option_ + ": " + path_ + " cannot be written: " + (errno != 0 ? std::strerror(errno) : "the device takes no more"));
    }

    std::string option_, path_;
    std::ofstream stream_{};
    bool made_ = false, finished_ = false;
};

}  // namespace tools
