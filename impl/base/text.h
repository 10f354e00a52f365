// Text that others wrote (names, paths, values of documents) in our messages, answers and logs.
//
// Messages are valid UTF-8 on one line, whatever stood in a file: every one leaves through printable(). A name or
// value inside a message is written by in_quotes(), so that nobody takes it for the message's own words.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/float_rules.h"

namespace moe {

// Bytes of the UTF-8 sequence at the start of s, 0 when it is none (RFC 3629: no surrogates, nothing overlong,
// nothing above U+10FFFF). s is not empty.
std::size_t utf8_length(std::string_view s);
// Characters of s; a byte that is no UTF-8 counts as one.
std::size_t character_count(std::string_view s);
// At most `count` characters of s, whole ones only.
std::string_view first_characters(std::string_view s, std::size_t count);

// s with a byte that is no UTF-8 as \xNN, and with a character that would steer a terminal or end a line as \uNNNN:
// control characters, line separators, and those that change the direction of writing.
std::string printable(std::string_view s);
// At most `most` characters of s in quotation marks, printable, with \" and \\: "name" or "nam"... (1000 characters).
std::string in_quotes(std::string_view s, std::size_t most = 48);

}  // namespace moe
