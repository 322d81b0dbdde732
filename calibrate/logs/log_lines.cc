// Finds a program's own text in a log: tags are compared by their shape, in which every run of digits
// is alike, and NCCL's lines by the "host:pid:tid" in front of its marks.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/log_lines.h"

#include "recordings/text.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace dovetail::imports {
namespace {

constexpr char kDigits = '\1';
constexpr char kBlanks = '\2';

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string shape_of(std::string_view text) {
  std::string shape;
  for (const char c : text) {
    const char kind = is_digit(c) ? kDigits : is_blank(c) ? kBlanks : c;
    const bool is_run = kind == kDigits || kind == kBlanks;
    if (!is_run || shape.empty() || shape.back() != kind) shape += kind;
  }
  return shape;
}

// Whether a row of numbers could hold a text of this shape.
bool could_be_numbers(std::string_view shape) {
  return std::ranges::all_of(shape, [](char c) {
    return c == kDigits || c == kBlanks || std::string_view(".+-e").find(c) != std::string::npos;
  });
}

// How many characters of the text, from `at` on, have the shape; 0: it has another one.
std::size_t length_at(std::string_view text, std::size_t at, std::string_view shape) {
  if (shape.front() == kDigits && at > 0 && is_digit(text[at - 1])) return 0;
  std::size_t end = at;
  for (const char kind : shape) {
    const std::size_t first = end;
    if (kind == kDigits) {
      while (end < text.size() && is_digit(text[end])) ++end;
    } else if (kind == kBlanks) {
      while (end < text.size() && is_blank(text[end])) ++end;
    } else if (end < text.size() && text[end] == kind) {
      ++end;
    }
    if (end == first) return 0;
  }
  return end - at;
}

// "host:12:34": where its two numbers begin; absent: the word is none of these.
struct HostWord {
  std::string_view host, pid, tid;
};

std::optional<HostWord> host_word(std::string_view word) {
  const std::size_t second = word.rfind(':');
  if (second == std::string_view::npos || second == 0) return std::nullopt;
  const std::size_t first = word.rfind(':', second - 1);
  if (first == std::string_view::npos || first == 0) return std::nullopt;
  const HostWord result{word.substr(0, first), word.substr(first + 1, second - first - 1),
                        word.substr(second + 1)};
  if (!integer_of(result.pid) || !integer_of(result.tid)) return std::nullopt;
  return result;
}

bool is_host_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_';
}

// Whether this can stand before a host's name without belonging to it: nothing, a number, a pointer, a tag.
bool may_precede_host(std::string_view text) {
  if (text.empty() || !is_host_letter(text.back()) || number_of(text)) return true;
  return text.starts_with("0x") &&
         text.find_first_not_of("0123456789abcdef", 2) == std::string_view::npos;
}

// The host at the end of a word that may begin with something else: "-1[0]host-a" is "host-a".
std::string_view host_at_end(std::string_view word,
                             const std::set<std::string, std::less<>>& hosts) {
  constexpr std::size_t kLongestHost = 255;
  std::size_t begin = word.size() - std::min(word.size(), kLongestHost);
  for (; begin < word.size(); ++begin) {
    if (may_precede_host(word.substr(0, begin)) && hosts.contains(word.substr(begin))) {
      return word.substr(begin);
    }
  }
  begin = word.size();
  while (begin > 0 && is_host_letter(word[begin - 1])) --begin;
  if (word.substr(begin).starts_with("0x")) return {};
  if (begin < word.size() && word[begin] == '-') {  // "-1host-a": no name begins so
    ++begin;
    while (begin < word.size() && is_digit(word[begin])) ++begin;
  }
  return word.substr(begin);
}

}  // namespace

std::string_view plain(std::string_view line, std::string& storage) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (line.starts_with(kMark)) line.remove_prefix(kMark.size());
  if (line.find('\x1b') == std::string_view::npos) return line;
  storage.clear();
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] != '\x1b') {
      storage += line[at];
      continue;
    }
    // "\x1b[", numbers and ';', one letter.
    std::size_t end = at + 1;
    if (end < line.size() && line[end] == '[') ++end;
    while (end < line.size() && (is_digit(line[end]) || line[end] == ';')) ++end;
    at = end;
  }
  return storage;
}

void LauncherTags::learn(std::string_view prefix) {
  // More numbers than a date has are a piece of a row.
  constexpr std::ptrdiff_t kMostNumbers = 2;
  const std::vector<std::string_view> words = words_of(prefix);
  const auto is_number = [](std::string_view word) { return number_of(word).has_value(); };
  if (std::ranges::count_if(words, is_number) > kMostNumbers) return;
  constexpr std::size_t kMostShapes = 64;
  constexpr std::size_t kLongest = 200;
  const std::string shape = shape_of(trimmed(prefix.substr(0, kLongest)));
  if (shape.size() < 2 || could_be_numbers(shape) || shapes_.size() >= kMostShapes) return;
  if (std::ranges::find(shapes_, shape) != shapes_.end()) return;
  shapes_.push_back(shape);
  std::ranges::stable_sort(shapes_, std::ranges::greater{}, &std::string::size);
}

std::string LauncherTags::without(std::string_view text) const {
  std::string result(text);
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const std::string& shape : shapes_) {
      const std::size_t length = length_at(text, at, shape);
      if (length == 0) continue;
      std::fill_n(result.begin() + static_cast<std::ptrdiff_t>(at), length, ' ');
      at += length - 1;
      break;
    }
  }
  return result;
}

std::optional<NcclLine> nccl_line(std::string_view text,
                                  const std::set<std::string, std::less<>>& hosts) {
  // Between the host and the mark stand the device and, by kind, a time and a place in the source.
  constexpr std::size_t kWordsBetween = 4;
  std::size_t from = 0;
  while (true) {
    const std::size_t mark = text.find("NCCL ", from);
    if (mark == std::string_view::npos) return std::nullopt;
    from = mark + 5;
    constexpr std::array<std::string_view, 6> kLevels = {"INFO ", "WARN ", "TRACE ",
                                                         "CALL ", "ATTN ", "DIAG "};
    const auto level = std::ranges::find_if(
        kLevels, [&](std::string_view word) { return text.substr(from).starts_with(word); });
    if (level == kLevels.end()) continue;
    const std::vector<std::string_view> words = words_of(text.substr(0, mark));
    for (std::size_t back = 1; back <= std::min(kWordsBetween, words.size()); ++back) {
      const std::string_view word = words[words.size() - back];
      const std::optional<HostWord> found = host_word(word);
      if (!found) continue;
      const std::string_view host = host_at_end(found->host, hosts);
      const auto begin = static_cast<std::size_t>(found->host.data() - text.data()) +
                         found->host.size() - host.size();
      return NcclLine{.begin = begin,
                      .host = host,
                      .pid = found->pid,
                      .tid = found->tid,
                      .device = back > 1 ? words[words.size() - back + 1] : std::string_view(),
                      .message = text.substr(from + level->size())};
    }
  }
}

std::optional<LibraryVersion> library_version(std::string_view text) {
  constexpr std::string_view kMark = "CCL version ";
  const std::size_t at = text.find(kMark);
  if (at == std::string_view::npos || at == 0 || (text[at - 1] != 'N' && text[at - 1] != 'R')) {
    return std::nullopt;
  }
  std::string_view version = word_after(text.substr(at), kMark);
  if (version == ":") version = word_after(text.substr(at + kMark.size()), ":");
  return LibraryVersion{.library = text.substr(at - 1, 4), .version = version};
}

}  // namespace dovetail::imports
