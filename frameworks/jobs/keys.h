// What each key of a framework's files is to a job: tables, one per framework, in frameworks/jobs/keys.
//
// A line of a table is `class;key;values;why`, as "decides;--hidden-dropout;0|0.0;dropout is not modelled":
//
//   read        a reader asks for it
//   harmless    neither time nor memory of a step depends on it; why
//   launcher    of what starts the ranks
//   decides     time or memory depends on it and no Job can hold it; what is counted in its place. With one of `values`,
//               between |, it does nothing; with none it always does something
//   refused     the same, and there is nothing to count in its place
//   renamed     an earlier name; `why` is the key that has it now
//   unknown     its owner refuses it
//   passed      its owner passes over it
//
// A * at the end of a key stands for any rest; the longest key that is like a name counts. What is like none is unknown.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace dovetail::frameworks {

struct Key {
  enum class Class : std::uint8_t {
    Read,
    Harmless,
    Launcher,
    Decides,
    Refused,
    Renamed,
    Unknown,
    Passed
  } kind = Class::Unknown;
  std::string_view values = {}, why = {};

  // Whether it does nothing with this value.
  [[nodiscard]] bool is_idle(std::string_view value) const;
};

class KeyTable {
 public:
  // In the order of the framework's own documentation: Megatron-LM's arguments, torchtitan's and DeepSpeed's keys.
  static const KeyTable& megatron();
  static const KeyTable& torchtitan();
  static const KeyTable& deepspeed();
  static const KeyTable& accelerate();
  static const KeyTable& llamafactory();
  static const KeyTable& axolotl();
  static const KeyTable& trainer();
  static const KeyTable& primus();
  // Models of Hugging Face's hub by their ids: `read`, with the known model of that shape in `values`, or `refused`.
  static const KeyTable& hub_models();

  // `owner`: whose keys they are, in words of a message: "Megatron-LM (Megatron-Core 0.20)".
  KeyTable(std::string_view owner, std::string_view text);
  [[nodiscard]] Key find(std::string_view name) const;
  [[nodiscard]] std::string_view owner() const { return owner_; }
  // The known key that is most likely meant; "" where none is.
  [[nodiscard]] std::string nearest(std::string_view name) const;

 private:
  std::string_view owner_;
  std::map<std::string_view, Key> keys_;      // whole names
  std::map<std::string_view, Key> patterns_;  // without their *
};

// What pydantic takes for a bool, which reads DeepSpeed's file.
inline constexpr std::string_view kTrue = "true|1|yes|on|t|y";
inline constexpr std::string_view kFalse = "false|0|no|off|f|n";

// One of the words between |, in small letters or capitals.
bool is_one_of(std::string_view value, std::string_view words);

}  // namespace dovetail::frameworks
