// The scanner behind JsonStream: reads a file in blocks and finds the ends of strings and nested
// values without building anything of what is skipped.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/json_stream.h"

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
constexpr std::string_view kMark = "\xEF\xBB\xBF";  // UTF-8's byte order mark

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

// The first quote or backslash from `begin` on, or the end.
std::size_t string_stop(std::string_view text, std::size_t begin) {
  const char* const from = text.data() + begin;
  const void* const quote = std::memchr(from, '"', text.size() - begin);
  const char* const stop =
      quote != nullptr ? static_cast<const char*>(quote) : text.data() + text.size();
  const void* const escape = std::memchr(from, '\\', static_cast<std::size_t>(stop - from));
  const char* const first = escape != nullptr ? static_cast<const char*>(escape) : stop;
  return static_cast<std::size_t>(first - text.data());
}

// Behind the quote that ends the string, or the end.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  while ((at = string_stop(text, at)) < text.size() && text[at] == '\\') {
    at = std::min(at + 2, text.size());
  }
  return std::min(at + 1, text.size());
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

JsonStream::JsonStream(ByteSource& source) : name_(source.name()), source_(&source) {
  buffer_.resize(kPiece);
  while (bytes_.size() < 3 && more()) {
  }
  if (bytes_.starts_with(kMark)) at_ = kMark.size();
  if (bytes_.starts_with("\xFF\xFE") || bytes_.starts_with("\xFE\xFF")) {
    throw InputError(name_ + ": UTF-16; a trace is UTF-8 (iconv -f UTF-16 -t UTF-8)");
  }
}

JsonStream::JsonStream(std::string name, std::string_view text, JsonCommas commas)
    : name_(std::move(name)), commas_(commas), bytes_(text) {
  if (text.starts_with(kMark)) at_ = kMark.size();
}

std::string JsonStream::place() const { return name_ + ": byte " + std::to_string(position()); }

void JsonStream::fail(const std::string& expected) {
  throw InputError(place() + ": expected " + expected + ", found " +
                   (at_ < bytes_.size() ? shown(bytes_[at_]) : "the end"));
}

void JsonStream::cut() {
  const std::string damage = source_ != nullptr ? source_->damage() : "";
  if (position() == 0 && damage.empty()) throw JsonCut("the file is empty");
  std::string reason = "ends at byte " + std::to_string(position()) + ", inside a value";
  if (!damage.empty()) reason += " (" + damage + ")";
  throw JsonCut(reason);
}

bool JsonStream::more() {
  if (source_ == nullptr) return false;
  const std::size_t first = keeping_ ? keep_ : at_;
  const std::size_t kept = bytes_.size() - first;
  if (first > 0) {
    std::memmove(buffer_.data(), buffer_.data() + first, kept);
    before_ += static_cast<std::int64_t>(first);
    at_ -= first;
    keep_ = 0;
  }
  if (kept == buffer_.size()) {
    if (buffer_.size() >= kLongestString) {
      throw InputError(place() + ": a string of more than 16 MiB");
    }
    buffer_.resize(buffer_.size() * 2);
  }
  const std::size_t size = source_->read(std::span(buffer_).subspan(kept));
  bytes_ = {buffer_.data(), kept + size};
  return size > 0;
}

char JsonStream::peek_token() {
  while (true) {
    const char* at = bytes_.data() + at_;
    const char* const end = bytes_.data() + bytes_.size();
    while (at != end && is_space(*at)) ++at;
    at_ = static_cast<std::size_t>(at - bytes_.data());
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

void JsonStream::refuse_depth() const {
  throw InputError(place() + ": nested deeper than " + std::to_string(kDeepest) + " levels");
}

void JsonStream::enter(char bracket, const char* what) {
  expect(bracket, what);
  if (open_.size() >= kDeepest) refuse_depth();
  open_.push_back(bracket);
  just_opened_ = true;
}

void JsonStream::enter_object() { enter('{', "an object"); }
void JsonStream::enter_array() { enter('[', "an array"); }

void JsonStream::require_no_last_comma() {
  if (commas_ == JsonCommas::Between) fail("what follows a comma");
}

std::optional<std::string_view> JsonStream::next_key() {
  char c = peek_token();
  if (!just_opened_ && c == ',') {
    ++at_;
    c = peek_token();
    if (c == '}') require_no_last_comma();
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
  if (at_ < bytes_.size() && bytes_[at_] == ':') {
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
    if (c == ']') require_no_last_comma();
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
  const bool escaped = pass_string();
  keeping_ = false;
  const std::string_view raw(bytes_.data() + keep_, at_ - 1 - keep_);
  return escaped ? unescaped(raw) : raw;
}

bool JsonStream::pass_string() {
  bool escaped = false;
  while (true) {
    at_ = string_stop(bytes_, at_);
    if (at_ < bytes_.size() && bytes_[at_] == '"') break;
    if (at_ < bytes_.size()) {
      escaped = true;
      while (bytes_.size() - at_ < 2) {
        if (!more()) cut();
      }
      at_ += 2;
    } else if (!more()) {
      cut();
    }
  }
  ++at_;
  return escaped;
}

void JsonStream::literal(std::string_view word) {
  for (const char c : word) {
    while (at_ == bytes_.size()) {
      if (!more()) cut();
    }
    if (bytes_[at_] != c) fail("\"" + std::string(word) + "\"");
    ++at_;
  }
}

bool JsonStream::is_null() {
  while (bytes_.size() - at_ < 2 && more()) {
  }
  return bytes_.size() - at_ >= 2 && bytes_[at_ + 1] == 'u';
}

// Up to the end of what could be part of a number, or of a word that stands for one.
std::size_t JsonStream::scan_number() {
  const std::size_t longest = 64;
  keep_ = at_;
  keeping_ = true;
  while (true) {
    while (at_ < bytes_.size() && in_number(bytes_[at_])) ++at_;
    while (at_ < bytes_.size() && in_number_word(bytes_[at_])) ++at_;
    if (at_ - keep_ > longest) fail("a number of at most 64 digits");
    if (at_ < bytes_.size() || !more()) break;
  }
  keeping_ = false;
  return at_ - keep_;
}

std::string_view JsonStream::number() {
  if (!may_begin_number(peek_token())) fail("a number");
  const std::size_t size = scan_number();
  const std::string_view text(bytes_.data() + keep_, size);
  if (std::ranges::all_of(text, in_number) || is_not_finite(text)) return text;
  if (at_ == bytes_.size()) cut();
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
        ++at_;
        static_cast<void>(pass_string());
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

void JsonStream::put_instead(std::size_t begin, std::size_t end, std::string_view strict) {
  strict_.append(bytes_, strict_to_, begin - strict_to_).append(strict);
  strict_to_ = end;
}

// Whatever the tokens are: who parses the text tells what is wrong in it.
std::optional<std::string_view> JsonStream::strict_text(Reach reach) {
  DOVETAIL_CHECK(source_ == nullptr);
  constexpr std::size_t kNone = std::string::npos;
  const std::size_t begin = at_;
  strict_.clear();
  strict_to_ = begin;
  int depth = 0;
  bool is_over = false;       // the object
  std::size_t comma = kNone;  // the last token, where that is one
  while (at_ < bytes_.size() && !is_over) {
    const std::size_t token = at_++;
    const char c = bytes_[token];
    if (is_space(c)) continue;
    const bool closes = c == '}' || c == ']';
    if (closes && comma != kNone) put_instead(comma, comma + 1, "");
    comma = c == ',' ? token : kNone;
    if (c == '"') {
      at_ = end_of_string(bytes_, at_);
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepest) refuse_depth();
    } else if (closes) {
      depth = std::max(depth - 1, 0);
      is_over = reach == Reach::Object && depth == 0;
    } else if (in_number_word(c)) {
      while (at_ < bytes_.size() && in_number_word(bytes_[at_])) ++at_;
      if (is_not_finite(bytes_.substr(token, at_ - token))) put_instead(token, at_, "null");
    }
  }
  if (reach == Reach::Object && !is_over) return std::nullopt;
  if (strict_to_ == begin) return bytes_.substr(begin, at_ - begin);
  put_instead(at_, at_, "");
  return strict_;
}

std::string_view JsonStream::document() { return *strict_text(Reach::All); }

std::optional<JsonItem> JsonStream::next_item() {
  for (; at_ < bytes_.size() && bytes_[at_] != '{'; ++at_) {
    if (bytes_[at_] == '\n') {
      ++line_;
    } else if (other_line_ != line_ &&
               std::string_view(" \t\r,[]").find(bytes_[at_]) == std::string_view::npos) {
      other_line_ = line_;
      ++items_end_.other_lines;
    }
  }
  if (at_ == bytes_.size()) return std::nullopt;
  const std::size_t begin = at_;
  const std::optional<std::string_view> text = strict_text(Reach::Object);
  if (!text) {
    items_end_.cut_line = line_;
    return std::nullopt;
  }
  const JsonItem item{.text = *text, .line = line_};
  line_ += static_cast<std::size_t>(std::ranges::count(bytes_.substr(begin, at_ - begin), '\n'));
  return item;
}

void JsonStream::expect_end() {
  while (true) {
    while (at_ < bytes_.size() && is_space(bytes_[at_])) ++at_;
    if (at_ < bytes_.size()) fail("the end of the file");
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
