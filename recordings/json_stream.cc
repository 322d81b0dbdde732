// The scanner behind JsonStream: reads a file in blocks and finds the ends of strings and nested
// values without building anything of what is skipped.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/json_stream.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <span>

namespace dovetail::imports {
namespace {

constexpr std::size_t kPiece = 256 * 1024;
constexpr std::size_t kLongestString = 16 * 1024 * 1024;

constexpr bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool in_number(char c) {
  return is_digit(c) || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E';
}

constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
// Of nan(ind), 1.#INF and the like.
constexpr bool in_number_word(char c) {
  return in_number(c) || is_letter(c) || c == '#' || c == '(' || c == ')' || c == '_';
}
constexpr bool may_begin_number(char c) {
  return is_digit(c) || c == '-' || c == '+' || c == 'N' || c == 'I' || c == 'n' || c == 'i';
}

// What the runtimes of C, C++, Python and Microsoft print where a number is none.
bool is_not_finite(std::string_view text) {
  std::string word;
  for (const char c : text) word += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  std::string_view rest = word;
  if (rest.starts_with('-') || rest.starts_with('+')) rest.remove_prefix(1);
  constexpr std::array<std::string_view, 6> kWords = {"nan",    "inf",    "infinity",
                                                      "1.#inf", "1.#ind", "1.#qnan"};
  return std::ranges::find(kWords, rest) != kWords.end() ||
         (rest.starts_with("nan(") && rest.ends_with(')'));
}

std::string shown(char c) {
  if (c >= ' ' && c < '\x7f') return std::string("'") + c + "'";
  return "byte " + std::to_string(static_cast<unsigned char>(c));
}

// The first quote or backslash in [begin, end), or end.
std::size_t string_stop(const std::string& text, std::size_t begin, std::size_t end) {
  const char* const from = text.data() + begin;
  const void* const quote = std::memchr(from, '"', end - begin);
  const char* const stop = quote != nullptr ? static_cast<const char*>(quote) : text.data() + end;
  const void* const escape = std::memchr(from, '\\', static_cast<std::size_t>(stop - from));
  const char* const first = escape != nullptr ? static_cast<const char*>(escape) : stop;
  return static_cast<std::size_t>(first - text.data());
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

void append_utf8(std::string& text, unsigned code) {
  const auto add = [&](unsigned byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | (code >> 6));
    add(0x80 | (code & 0x3F));
  } else {
    add(0xE0 | (code >> 12));
    add(0x80 | ((code >> 6) & 0x3F));
    add(0x80 | (code & 0x3F));
  }
}

}  // namespace

JsonStream::JsonStream(ByteSource& source) : source_(source) {
  buffer_.resize(kPiece);
  while (end_ < 3 && more()) {
  }
  const std::string_view first(buffer_.data(), std::min<std::size_t>(end_, 3));
  if (first == "\xEF\xBB\xBF") at_ = 3;  // UTF-8's byte order mark
  if (first.starts_with("\xFF\xFE") || first.starts_with("\xFE\xFF")) {
    throw InputError(source_.name() + ": UTF-16; a trace is UTF-8 (iconv -f UTF-16 -t UTF-8)");
  }
}

void JsonStream::fail(const std::string& expected) {
  throw InputError(source_.name() + ": byte " + std::to_string(position()) + ": expected " +
                   expected + ", found " + (at_ < end_ ? shown(buffer_[at_]) : "the end"));
}

void JsonStream::cut() {
  if (position() == 0 && source_.damage().empty()) throw JsonCut("the file is empty");
  std::string reason = "ends at byte " + std::to_string(position()) + ", inside a value";
  if (!source_.damage().empty()) reason += " (" + source_.damage() + ")";
  throw JsonCut(reason);
}

bool JsonStream::more() {
  const std::size_t first = keeping_ ? keep_ : at_;
  const std::size_t kept = end_ - first;
  if (first > 0) {
    std::memmove(buffer_.data(), buffer_.data() + first, kept);
    before_ += static_cast<std::int64_t>(first);
    at_ -= first;
    keep_ = 0;
    end_ = kept;
  }
  if (end_ == buffer_.size()) {
    if (buffer_.size() >= kLongestString) {
      throw InputError(source_.name() + ": byte " + std::to_string(position()) +
                       ": a string of more than 16 MiB");
    }
    buffer_.resize(buffer_.size() * 2);
  }
  const std::size_t size = source_.read(std::span(buffer_).subspan(end_));
  end_ += size;
  return size > 0;
}

char JsonStream::peek_token() {
  while (true) {
    const char* at = buffer_.data() + at_;
    const char* const end = buffer_.data() + end_;
    while (at != end && is_space(*at)) ++at;
    at_ = static_cast<std::size_t>(at - buffer_.data());
    if (at != end) return *at;
    if (!more()) cut();
  }
}

void JsonStream::expect(char wanted, const char* what) {
  if (peek_token() != wanted) fail(what);
  ++at_;
}

JsonKind JsonStream::kind() {
  const char c = peek_token();
  switch (c) {
    case '{':
      return JsonKind::Object;
    case '[':
      return JsonKind::Array;
    case '"':
      return JsonKind::String;
    case 't':
      return JsonKind::True;
    case 'f':
      return JsonKind::False;
    case 'n':
      return is_null() ? JsonKind::Null : JsonKind::Number;
    default:
      break;
  }
  if (may_begin_number(c)) return JsonKind::Number;
  fail("a value");
}

void JsonStream::enter(char bracket, const char* what) {
  expect(bracket, what);
  if (open_.size() >= kDeepest) {
    throw InputError(source_.name() + ": byte " + std::to_string(position()) +
                     ": nested deeper than " + std::to_string(kDeepest) + " levels");
  }
  open_.push_back(bracket);
  just_opened_ = true;
}

void JsonStream::enter_object() { enter('{', "an object"); }
void JsonStream::enter_array() { enter('[', "an array"); }

std::optional<std::string_view> JsonStream::next_key() {
  char c = peek_token();
  if (!just_opened_ && c == ',') {
    ++at_;
    c = peek_token();
  } else if (!just_opened_ && c != '}') {
    fail("',' or '}'");
  }
  just_opened_ = false;
  if (c == '}') {
    ++at_;
    open_.pop_back();
    return std::nullopt;
  }
  // Old writers of PyTorch left out the first quote of some keys.
  const bool is_open = c != '"' && is_letter(c);
  if (c != '"' && !is_open) fail("a key in quotes or '}'");
  const std::string_view raw = is_open ? rest_of_string() : string();
  // The key is still in the buffer, or in unescaped_; what follows may move the buffer.
  if (at_ < end_ && buffer_[at_] == ':') {
    ++at_;
    return raw;
  }
  if (raw.data() != unescaped_.data()) unescaped_.assign(raw);
  expect(':', "':' after a key");
  return unescaped_;
}

bool JsonStream::next_element() {
  char c = peek_token();
  if (!just_opened_ && c == ',') {
    ++at_;
    c = peek_token();
  } else if (!just_opened_ && c != ']') {
    fail("',' or ']'");
  }
  just_opened_ = false;
  if (c != ']') return true;
  ++at_;
  open_.pop_back();
  return false;
}

std::string_view JsonStream::unescaped(std::string_view raw) {
  unescaped_.clear();
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\' || i + 1 == raw.size()) {
      unescaped_ += raw[i];
      continue;
    }
    const char c = raw[++i];
    switch (c) {
      case 'b':
        unescaped_ += '\b';
        break;
      case 'f':
        unescaped_ += '\f';
        break;
      case 'n':
        unescaped_ += '\n';
        break;
      case 'r':
        unescaped_ += '\r';
        break;
      case 't':
        unescaped_ += '\t';
        break;
      case 'u': {
        unsigned code = 0;
        int digits = 0;
        while (digits < 4 && i + 1 < raw.size() && hex_digit(raw[i + 1]) >= 0) {
          code = code * 16 + static_cast<unsigned>(hex_digit(raw[++i]));
          ++digits;
        }
        append_utf8(unescaped_, digits == 4 ? code : 0xFFFD);
        break;
      }
      default:
        unescaped_ += c;
    }
  }
  return unescaped_;
}

std::string_view JsonStream::string() {
  expect('"', "a string");
  return rest_of_string();
}

std::string_view JsonStream::rest_of_string() {
  keep_ = at_;
  keeping_ = true;
  bool escaped = false;
  while (true) {
    at_ = string_stop(buffer_, at_, end_);
    if (at_ < end_ && buffer_[at_] == '"') break;
    if (at_ < end_) {
      escaped = true;
      while (end_ - at_ < 2) {
        if (!more()) cut();
      }
      at_ += 2;
    } else if (!more()) {
      cut();
    }
  }
  keeping_ = false;
  const std::string_view raw(buffer_.data() + keep_, at_ - keep_);
  ++at_;
  return escaped ? unescaped(raw) : raw;
}

void JsonStream::skip_string() {
  ++at_;
  while (true) {
    at_ = string_stop(buffer_, at_, end_);
    if (at_ < end_ && buffer_[at_] == '"') break;
    if (at_ < end_) {
      while (end_ - at_ < 2) {
        if (!more()) cut();
      }
      at_ += 2;
    } else if (!more()) {
      cut();
    }
  }
  ++at_;
}

void JsonStream::literal(std::string_view word) {
  for (const char c : word) {
    while (at_ == end_) {
      if (!more()) cut();
    }
    if (buffer_[at_] != c) fail("\"" + std::string(word) + "\"");
    ++at_;
  }
}

bool JsonStream::is_null() {
  while (end_ - at_ < 2 && more()) {
  }
  return end_ - at_ >= 2 && buffer_[at_ + 1] == 'u';
}

// Up to the end of what could be part of a number, or of a word that stands for one.
std::size_t JsonStream::scan_number() {
  const std::size_t longest = 64;
  keep_ = at_;
  keeping_ = true;
  while (true) {
    while (at_ < end_ && in_number(buffer_[at_])) ++at_;
    while (at_ < end_ && in_number_word(buffer_[at_])) ++at_;
    if (at_ - keep_ > longest) fail("a number of at most 64 digits");
    if (at_ < end_ || !more()) break;
  }
  keeping_ = false;
  return at_ - keep_;
}

std::string_view JsonStream::number() {
  if (!may_begin_number(peek_token())) fail("a number");
  const std::size_t size = scan_number();
  const std::string_view text(buffer_.data() + keep_, size);
  if (std::ranges::all_of(text, in_number) || is_not_finite(text)) return text;
  at_ = keep_;
  fail("a number");
}

void JsonStream::skip() {
  const std::size_t outside = open_.size();
  do {
    const char c = peek_token();
    switch (c) {
      case '{':
      case '[':
        enter(c, "a value");
        break;
      case '}':
      case ']':
        if (open_.size() == outside || open_.back() != (c == '}' ? '{' : '[')) fail("a value");
        open_.pop_back();
        ++at_;
        break;
      case '"':
        skip_string();
        break;
      case ',':
      case ':':
        if (open_.size() == outside) fail("a value");
        ++at_;
        break;
      case 't':
        literal("true");
        break;
      case 'f':
        literal("false");
        break;
      case 'n':
        if (is_null()) {
          literal("null");
          break;
        }
        [[fallthrough]];
      default:
        static_cast<void>(number());
    }
  } while (open_.size() > outside);
  just_opened_ = false;
}

void JsonStream::expect_end() {
  while (true) {
    while (at_ < end_ && is_space(buffer_[at_])) ++at_;
    if (at_ < end_) fail("the end of the file");
    if (!more()) return;
  }
}

std::optional<std::int64_t> nanoseconds_of(std::string_view microseconds) {
  std::string_view rest = microseconds;
  const bool negative = rest.starts_with('-');
  if (negative) rest.remove_prefix(1);
  std::int64_t whole = 0;
  const auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), whole);
  if (status != std::errc() || whole < 0) return std::nullopt;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  constexpr std::int64_t kMostUs = std::int64_t{4'100'000'000'000'000};  // 130 years
  std::int64_t ns = 0;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    std::int64_t scale = 100;
    while (!rest.empty() && is_digit(rest.front())) {
      ns += (rest.front() - '0') * scale;
      scale /= 10;  // digits beyond the third: below what any profiler measures
      rest.remove_prefix(1);
    }
  }
  if (!rest.empty()) {  // an exponent
    double value = 0;
    const auto [last, ok] =
        std::from_chars(microseconds.data(), microseconds.data() + microseconds.size(), value);
    if (ok != std::errc() || last != microseconds.data() + microseconds.size()) return std::nullopt;
    if (!std::isfinite(value) || std::abs(value) > static_cast<double>(kMostUs))
      return std::nullopt;
    return std::llround(value * 1000);
  }
  if (whole > kMostUs) return std::nullopt;
  const std::int64_t sum = whole * 1000 + ns;
  return negative ? -sum : sum;
}

std::optional<std::int64_t> whole_number_of(std::string_view text) {
  // Tools that rewrite traces make 12.0 of 12.
  if (const std::size_t point = text.find('.'); point != std::string_view::npos) {
    if (text.find_first_not_of('0', point + 1) != std::string_view::npos) return std::nullopt;
    text = text.substr(0, point);
  }
  std::int64_t value = 0;
  const char* const last = text.data() + text.size();
  auto result = std::from_chars(text.data(), last, value);
  if (result.ec == std::errc() && result.ptr == last) return value;
  std::uint64_t large = 0;
  result = std::from_chars(text.data(), last, large);
  if (result.ec == std::errc() && result.ptr == last) return static_cast<std::int64_t>(large);
  return std::nullopt;
}

}  // namespace dovetail::imports
