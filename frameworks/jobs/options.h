// What a framework's own text says, whatever its syntax: a flat list of names and values that a reader asks, and that
// knows in the end what nobody asked for.
//
//   Options options("train.toml", {{"training.seq_len", "8192"}, {"metrics.log_freq", "10"}});
//   options.whole("training.seq_len", 2048)              8192; 2048 where it is not there
//   options.rest(KeyTable::torchtitan(), false)          what became of those that nobody asked for
//
// Messages read  `train.toml: training.seq_len: expected a whole number, found "long"`.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frameworks/jobs/keys.h"
#include "models/networks/job.h"

namespace dovetail::frameworks {

struct OptionText {
  std::string name, value = {};
  bool heeded = false;
};

// These in place of those of the same name.
void replace(std::vector<OptionText>& options, std::vector<OptionText> by);

class Options {
 public:
  Options(std::string file, std::vector<OptionText> options)
      : file_(std::move(file)), options_(std::move(options)) {}

  // Of two with one name the last counts, as in argparse.
  [[nodiscard]] const std::string* find(std::string_view name);
  [[nodiscard]] bool has(std::string_view name) { return find(name) != nullptr; }
  // The same without asking for it: notes() still tells of it.
  [[nodiscard]] bool is_there(std::string_view name) const;
  [[nodiscard]] bool is(std::string_view name,
                        std::string_view words) const;          // one of them, between |
  [[nodiscard]] bool has_section(std::string_view name) const;  // anything below it
  // A count of things, also as 5e8.
  [[nodiscard]] std::int64_t whole(std::string_view name, std::int64_t otherwise,
                                   std::int64_t least = 1,
                                   std::int64_t most = std::int64_t{1} << 32);
  [[nodiscard]] double number(std::string_view name, double otherwise);
  // A degree or a number of samples or layers: three of them multiply within 64 bits.
  [[nodiscard]] std::int64_t degree(std::string_view name, std::int64_t otherwise,
                                    std::int64_t least = 1) {
    return whole(name, otherwise, least, 1 << 20);
  }
  [[nodiscard]] bool flag(std::string_view name, bool otherwise);  // true or false
  [[nodiscard]] std::string text(std::string_view name, std::string_view otherwise);
  // One of these words, in small letters or capitals.
  template <class T>
  [[nodiscard]] T word(std::string_view name, T otherwise,
                       const std::vector<std::pair<std::string_view, T>>& words) {
    std::vector<std::string_view> known;
    for (const auto& [text, value] : words) known.push_back(text);
    const std::optional<std::size_t> index = word_index(name, known);
    return index ? words[*index].second : otherwise;
  }

  // Throws InputError, which shows the value.
  [[noreturn]] void fail(std::string_view name, const std::string& expected);
  // In place of what is there, if it is.
  void set(std::string_view name, const std::string& value);
  void set_or_add(std::string_view name, const std::string& value);
  void drop(std::string_view name);
  // What stands below a key ("deepspeed.zero_optimization.stage"), without it, and no longer here.
  [[nodiscard]] std::vector<OptionText> take_section(std::string_view name);
  void add_section(std::string_view name, std::vector<OptionText> options);
  // Earlier names become those of now.
  void rename(const KeyTable& keys);
  // Throws InputError "FILE: NAME: WHY" for the first that is refused and has a value that does something.
  void refuse(const KeyTable& keys);

  // What became of options that nobody asked for: those that decide and are not modelled, and one line for each that its owner
  // passes over. Of those that were asked for and are there with two values a line says which counted. Throws InputError for
  // those that the owner refuses, with the key that is nearest; with `passes_unknown` they are passed over instead.
  struct Rest {
    std::vector<jobs::Assumed> assumed = {};
    std::vector<std::string> notes = {};
  };
  [[nodiscard]] Rest rest(const KeyTable& keys, bool passes_unknown) const;
  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  [[noreturn]] void refuse_unknown(const KeyTable& keys,
                                   const std::vector<std::string>& names) const;
  [[nodiscard]] std::optional<std::size_t> word_index(std::string_view name,
                                                      std::span<const std::string_view> words);

  std::string file_;
  std::vector<OptionText> options_;
};

}  // namespace dovetail::frameworks
