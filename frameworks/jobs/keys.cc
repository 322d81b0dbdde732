// Holds the tables of frameworks/jobs/keys in the program, and looks keys up.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/keys.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/embedded.h"
#include "base/error.h"
#include "base/json_reader.h"

DOVETAIL_EMBED(keys_megatron, DOVETAIL_KEYS_DIR "/megatron.keys")
DOVETAIL_EMBED(keys_torchtitan, DOVETAIL_KEYS_DIR "/torchtitan.keys")
DOVETAIL_EMBED(keys_deepspeed, DOVETAIL_KEYS_DIR "/deepspeed.keys")
DOVETAIL_EMBED(keys_accelerate, DOVETAIL_KEYS_DIR "/accelerate.keys")
DOVETAIL_EMBED(keys_llamafactory, DOVETAIL_KEYS_DIR "/llamafactory.keys")
DOVETAIL_EMBED(keys_axolotl, DOVETAIL_KEYS_DIR "/axolotl.keys")
DOVETAIL_EMBED(keys_trainer, DOVETAIL_KEYS_DIR "/trainer.keys")
DOVETAIL_EMBED(keys_primus, DOVETAIL_KEYS_DIR "/primus.keys")
DOVETAIL_EMBED(keys_hub_models, DOVETAIL_KEYS_DIR "/hub_models.keys")

namespace dovetail::frameworks {
namespace {

constexpr std::array<std::pair<std::string_view, Key::Class>, 8> kClasses = {
    {{"read", Key::Class::Read},
     {"harmless", Key::Class::Harmless},
     {"launcher", Key::Class::Launcher},
     {"decides", Key::Class::Decides},
     {"refused", Key::Class::Refused},
     {"renamed", Key::Class::Renamed},
     {"unknown", Key::Class::Unknown},
     {"passed", Key::Class::Passed}}};

// Cuts off what stands before `end`, and that.
std::string_view take_until(std::string_view& text, char end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return taken;
}

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return small;
}

}  // namespace

bool is_one_of(std::string_view value, std::string_view words) {
  const std::string small = in_small_letters(value);
  while (!words.empty()) {
    if (small == take_until(words, '|')) return true;
  }
  return false;
}

bool Key::is_idle(std::string_view value) const {
  const auto is_also = [&](std::string_view word, std::string_view words) {
    return is_one_of(word, values) && is_one_of(value, words);
  };
  return is_one_of(value, values) || is_also("true", kTrue) || is_also("false", kFalse);
}

KeyTable::KeyTable(std::string_view owner, std::string_view text) : owner_(owner) {
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    if (line.empty() || line.starts_with('#')) continue;
    const std::string_view kind = take_until(line, ';');
    const std::string_view name = take_until(line, ';');
    const auto known =
        std::ranges::find(kClasses, kind, &std::pair<std::string_view, Key::Class>::first);
    DOVETAIL_CHECK(known != kClasses.end() && !name.empty()) << owner_ << ": " << name;
    const Key key{.kind = known->second, .values = take_until(line, ';'), .why = line};
    const bool is_pattern = name.ends_with('*');
    auto& table = is_pattern ? patterns_ : keys_;
    const bool is_new =
        table.emplace(is_pattern ? name.substr(0, name.size() - 1) : name, key).second;
    DOVETAIL_CHECK(is_new) << owner_ << ": " << name << " is there twice";
  }
}

Key KeyTable::find(std::string_view name) const {
  if (const auto own = keys_.find(name); own != keys_.end()) return own->second;
  for (std::size_t length = name.size() + 1; length-- > 0;) {
    const auto like = patterns_.find(name.substr(0, length));
    if (like != patterns_.end()) return like->second;
  }
  return {};
}

std::string KeyTable::nearest(std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& [key, value] : keys_) names.emplace_back(key);
  return nearest_word(name, names);
}

const KeyTable& KeyTable::megatron() {
  static const KeyTable kTable("Megatron-LM (Megatron-Core 0.20)",
                               DOVETAIL_EMBEDDED(keys_megatron));
  return kTable;
}

const KeyTable& KeyTable::torchtitan() {
  static const KeyTable kTable("torchtitan (0.2.2 and earlier)",
                               DOVETAIL_EMBEDDED(keys_torchtitan));
  return kTable;
}

const KeyTable& KeyTable::deepspeed() {
  static const KeyTable kTable("DeepSpeed (0.19.6)", DOVETAIL_EMBEDDED(keys_deepspeed));
  return kTable;
}

const KeyTable& KeyTable::accelerate() {
  static const KeyTable kTable("accelerate (commit 16cb6eb8)", DOVETAIL_EMBEDDED(keys_accelerate));
  return kTable;
}

const KeyTable& KeyTable::llamafactory() {
  static const KeyTable kTable("LLaMA-Factory (commit ff6d4d12)",
                               DOVETAIL_EMBEDDED(keys_llamafactory));
  return kTable;
}

const KeyTable& KeyTable::axolotl() {
  static const KeyTable kTable("axolotl (commit 067b021c)", DOVETAIL_EMBEDDED(keys_axolotl));
  return kTable;
}

const KeyTable& KeyTable::trainer() {
  static const KeyTable kTable("transformers (4.57.1)", DOVETAIL_EMBEDDED(keys_trainer));
  return kTable;
}

const KeyTable& KeyTable::primus() {
  static const KeyTable kTable("Primus (commit fd1eeabb)", DOVETAIL_EMBEDDED(keys_primus));
  return kTable;
}

const KeyTable& KeyTable::hub_models() {
  static const KeyTable kTable("Hugging Face's hub", DOVETAIL_EMBEDDED(keys_hub_models));
  return kTable;
}

}  // namespace dovetail::frameworks
