// What the tools' contract says of every one of them: exit 0; 2 with `refused: LAW_NAME: sentence`; 1 on any other error; never an
// abort. And numbers on the command line, read strictly: decimal digits, nothing before or after them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/dtype.hpp>
#include <tenon/core/error.hpp>

#include <CLI/CLI.hpp>

#include <charconv>
#include <csignal>
#include <exception>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace tools {

/// One line that a terminal shows as it is: names from files and arguments may hold anything.
inline std::string one_line(std::string_view text) {
    std::string out;
    for (char const c : text) {
        auto const byte = static_cast<unsigned char>(c);
        constexpr std::string_view digits = "0123456789abcdef";
        if (byte >= 0x20 && byte != 0x7f) out += c;
        else out += std::string("\\x") + digits[byte >> 4U] + digits[byte & 15U];
    }
    return out;
}

/// Whether this process prints and writes: the first of several that do the same.
inline bool& speaks() {
    static bool alone = true;
    return alone;
}

/// Calls `body(app)`, which adds its options, parses and works; gives the exit status.
template <class Body>
int exit_status(std::string const& about, std::string const& name, Body body) noexcept {
    // A reader that has left and a file-size limit are errors of a write, not the end of the program.
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
    try {
        CLI::App app{about, name};
        try {
            body(app);
            std::cout.flush();
            if (!std::cout) throw std::runtime_error("standard output cannot be written");
            return 0;
        } catch (CLI::Success const& help) {
            app.exit(help);
            std::cout.flush();
            return std::cout ? 0 : 1;
        } catch (CLI::ParseError const& wrong) {
            app.exit(wrong);
            return 1;
        } catch (tenon::refusal const& refused) {
            if (!speaks()) return 0;  // the first process says it, and a failure here would end it before it has
            std::cerr << "refused: " << one_line(refused.what()) << '\n';
            return 2;
        } catch (std::bad_alloc const&) {
            std::cerr << "refused: memory_suffices: the system gives no more memory\n";
            return 2;
        } catch (std::exception const& failed) {
            std::cerr << name << ": " << one_line(failed.what()) << '\n';
            return 1;
        }
    } catch (...) {
        return 1;  // standard error itself failed, or something that is no std::exception
    }
}

/// The number that the whole of `text` spells; `option` names its place in messages.
template <class Number>
Number number_of(std::string_view text, std::string const& option) {
    Number value{};
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range) throw CLI::ValidationError(option, "\"" + std::string(text) + "\" does not fit");
    if (error != std::errc{} || end != text.data() + text.size()) throw CLI::ValidationError(option, "\"" + std::string(text) + "\" is not a number");
    return value;
}

/// An option that takes one number.
template <class Number>
CLI::Option* add_number(CLI::App& app, std::string const& option, Number& value, std::string const& about) {
    return app
        .add_option_function<std::string>(
            option, [&value, option](std::string const& text) { value = number_of<Number>(text, option); }, about)
        ->type_name("NUMBER");
}

[[noreturn]] inline void refuse(std::string_view law, std::string_view sentence) { throw tenon::refusal(law, sentence); }

/// A weight format by its name on the command line; `stored` where an option would have refused the name.
inline tenon::weights weights_named(std::string_view name) {
    for (tenon::weights const w : {tenon::weights::f32, tenon::weights::bf16, tenon::weights::q8})
        if (tenon::name_of(w) == name) return w;
    return tenon::weights::stored;
}

/// A format of keys and values by its name on the command line; f32 where an option would have refused the name.
inline tenon::kv_format kv_named(std::string_view name) { return name == "bf16" ? tenon::kv_format::bf16 : tenon::kv_format::f32; }

}  // namespace tools
