// Reads the text of an HLO module: a line is a header, the begin or end of a computation, or an instruction.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/hlo/module.h"

#include "base/error.h"

#include <algorithm>
#include <array>

namespace dovetail::imports {
namespace {

constexpr int kDeepestTuple = 32;                         // tuples within tuples
constexpr std::int64_t kLargest = std::int64_t{1} << 43;  // bytes of one shape

struct ElementType {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array kElementTypes = {
    ElementType{"f32", 4}, ElementType{"bf16", 2},  ElementType{"f16", 2},   ElementType{"f64", 8},
    ElementType{"s32", 4}, ElementType{"u32", 4},   ElementType{"pred", 1},  ElementType{"s8", 1},
    ElementType{"u8", 1},  ElementType{"s16", 2},   ElementType{"u16", 2},   ElementType{"s64", 8},
    ElementType{"u64", 8}, ElementType{"c64", 8},   ElementType{"c128", 16}, ElementType{"s4", 1},
    ElementType{"u4", 1},  ElementType{"s2", 1},    ElementType{"u2", 1},    ElementType{"s1", 1},
    ElementType{"u1", 1},  ElementType{"token", 0}, ElementType{"opaque", 0}};

bool opens(char c) { return c == '(' || c == '{' || c == '['; }
bool closes(char c) { return c == ')' || c == '}' || c == ']'; }

// Where a text at its opening bracket ends, behind the closing one; npos: it does not.
std::size_t behind_bracket(std::string_view text) {
  std::int64_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && opens(c)) {
      ++depth;
    } else if (!quoted && closes(c) && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

class Reader {
 public:
  explicit Reader(const Source& file) : file_(file) {}

  HloModule run() && {
    for_each_line(file_.text, [this](std::string_view line, std::size_t number) {
      line_ = number;
      take(line);
    });
    if (module_.name.empty()) fail_file("expected a line that begins with HloModule");
    if (open_ != nullptr) fail_file("the file ends within a computation: it is cut off");
    if (module_.entry == nullptr) fail_file("no ENTRY computation: the file is cut off");
    return std::move(module_);
  }

 private:
  [[noreturn]] void fail_file(const std::string& what) const {
    throw InputError(file_.name + ": " + what);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(file_.name + ": line " + std::to_string(line_) + ": " + what);
  }

  void take(std::string_view line) {
    const std::string_view text = trimmed(line);
    if (text.starts_with("HloModule ")) return take_header(text.substr(10));
    if (open_ == nullptr) {
      if (text.ends_with('{') && !line.empty() && !is_blank(line.front())) begin(text);
      return;
    }
    if (text.starts_with('}')) return end();
    if (!text.empty()) take_instruction(text);
  }

  void take_header(std::string_view text) {
    if (!module_.name.empty()) fail("a second HloModule: give one module a file");
    const std::vector<std::string_view> parts = hlo_parts(text);
    if (parts.empty()) fail("a module without a name");
    module_.name = parts.front();
    for (const std::string_view part : parts) {
      if (part == "is_scheduled=true") module_.is_scheduled = true;
      if (part.starts_with("num_partitions=")) module_.partitions = count_of(part.substr(15));
      if (part.starts_with("replica_count=")) module_.replicas = count_of(part.substr(14));
    }
  }

  [[nodiscard]] std::int64_t count_of(std::string_view word) const {
    const std::optional<std::int64_t> count = integer_of(word);
    if (!count || *count < 1 || *count > (std::int64_t{1} << 20)) {
      fail("expected a number of devices from 1 to 1048576, found " + printable(word));
    }
    return *count;
  }

  void begin(std::string_view text) {
    if (module_.name.empty()) fail_file("expected a line that begins with HloModule");
    const bool is_entry = text.starts_with("ENTRY ");
    if (is_entry) text.remove_prefix(6);
    const std::string_view name = hlo_name(text.substr(0, text.find_first_of(" ({")));
    const auto [entry, is_new] = module_.computations.try_emplace(name);
    if (!is_new) fail("a second computation " + printable(name));
    open_ = &entry->second;
    open_->name = name;
    has_root_ = false;
    if (is_entry) module_.entry = open_;
  }

  void end() {
    if (open_->instructions.empty()) fail("a computation without an instruction");
    if (!has_root_) open_->root = open_->instructions.size() - 1;
    open_ = nullptr;
  }

  void take_instruction(std::string_view text) {
    HloInstruction made;
    made.line = line_;
    if (text.starts_with("ROOT ")) {
      made.is_root = true;
      text.remove_prefix(5);
    }
    const std::size_t equals = text.find(" = ");
    if (equals == std::string_view::npos) fail("expected NAME = SHAPE OPCODE(OPERANDS)");
    made.name = hlo_name(text.substr(0, equals));
    text = trimmed(text.substr(equals + 3));
    made.shape = take_shape(text, 0);
    text = trimmed(text);
    const std::size_t paren = text.find('(');
    const std::size_t behind =
        paren == std::string_view::npos ? paren : behind_bracket(text.substr(paren));
    if (behind == std::string_view::npos || paren == 0) fail("expected OPCODE(OPERANDS)");
    made.opcode = text.substr(0, paren);
    if (!std::ranges::all_of(made.opcode, is_word)) fail("expected OPCODE(OPERANDS)");
    if (made.opcode != "constant") {
      for (const std::string_view part : hlo_parts(text.substr(paren + 1, behind - 2))) {
        made.operands.push_back(hlo_name(part));
      }
    }
    text.remove_prefix(paren + behind);
    for (const std::string_view part : hlo_parts(text)) {
      const std::size_t sign = part.find('=');
      if (sign == std::string_view::npos) continue;
      made.attributes.emplace_back(part.substr(0, sign), part.substr(sign + 1));
    }
    take_start(made);
    keep(std::move(made));
  }

  // fusion-start, all-gather-start: the instruction itself, started. async-start names a computation, copy-start gives
  // its result first.
  static void take_start(HloInstruction& made) {
    if (!made.opcode.ends_with("-start") || made.opcode == "async-start" ||
        made.opcode == "copy-start") {
      return;
    }
    made.opcode.remove_suffix(6);
    made.is_start = true;
    const std::vector<HloShape>& parts = made.shape.parts;
    if (parts.size() < 2) return;
    if (parts.front().is_tuple || parts.size() != made.operands.size()) {
      HloShape results = parts[1];
      made.shape = std::move(results);
    }
  }

  void keep(HloInstruction made) {
    const std::size_t at = open_->instructions.size();
    if (!open_->index.emplace(made.name, at).second) {
      fail("a second instruction " + printable(made.name));
    }
    if (made.is_root) {
      if (has_root_) fail("a second ROOT");
      has_root_ = true;
      open_->root = at;
    }
    open_->instructions.push_back(std::move(made));
  }

  HloShape take_shape(std::string_view& text, int depth) {
    if (depth > kDeepestTuple) fail("tuples more than 32 deep");
    skip_comment(text);
    HloShape shape;
    if (!text.starts_with('(')) return take_array(text);
    shape.is_tuple = true;
    text.remove_prefix(1);
    while (skip_comment(text), !text.starts_with(')')) {
      shape.parts.push_back(take_shape(text, depth + 1));
      skip_comment(text);
      if (text.starts_with(',')) {
        text.remove_prefix(1);
      } else if (!text.starts_with(')')) {
        fail("expected a shape, as f32[2,3]");
      }
    }
    text.remove_prefix(1);
    return shape;
  }

  HloShape take_array(std::string_view& text) {
    HloShape shape;
    const std::size_t bracket = text.find('[');
    const std::size_t end = text.find(']');
    if (bracket == std::string_view::npos || end == std::string_view::npos || end < bracket) {
      fail("expected a shape, as f32[2,3]");
    }
    shape.type = text.substr(0, bracket);
    std::int64_t bytes = hlo_element_bytes(shape.type).value_or(-1);
    if (bytes < 0) fail("element type " + printable(shape.type) + " is not known");
    for (std::string_view part : hlo_parts(text.substr(bracket + 1, end - bracket - 1))) {
      if (part.starts_with("<=")) part.remove_prefix(2);  // at most so long
      const std::optional<std::int64_t> extent = integer_of(part);
      if (!extent || *extent < 0) fail("expected an extent, found " + printable(part));
      if (*extent > 0 && std::max<std::int64_t>(bytes, 1) > kLargest / *extent) {
        fail("a shape of more than 8 TiB");
      }
      bytes = std::max<std::int64_t>(bytes, 1) * *extent;
      shape.dims.push_back(*extent);
    }
    text.remove_prefix(end + 1);
    if (text.starts_with('{')) {
      const std::size_t behind = behind_bracket(text);
      if (behind == std::string_view::npos) fail("a layout that does not end");
      text.remove_prefix(behind);
    }
    return shape;
  }

  // Blanks and comments such as /*index=5*/.
  static void skip_comment(std::string_view& text) {
    text = trimmed(text);
    while (text.starts_with("/*")) {
      const std::size_t end = text.find("*/");
      text = end == std::string_view::npos ? std::string_view{} : trimmed(text.substr(end + 2));
    }
  }

  const Source& file_;
  HloModule module_;
  HloComputation* open_ = nullptr;
  bool has_root_ = false;
  std::size_t line_ = 0;
};

}  // namespace

std::optional<std::int64_t> hlo_element_bytes(std::string_view type) {
  const auto* const known = std::ranges::find(kElementTypes, type, &ElementType::name);
  if (known != kElementTypes.end()) return known->bytes;
  if (type.starts_with("f8") || type.starts_with("f4")) return 1;  // f8e4m3fn and its kin
  return std::nullopt;
}

std::vector<const HloShape*> HloShape::leaves() const {
  if (!is_tuple) return {this};
  std::vector<const HloShape*> all;
  for (const HloShape& part : parts) {
    for (const HloShape* leaf : part.leaves()) all.push_back(leaf);
  }
  return all;
}

std::int64_t HloShape::numel() const {
  std::int64_t sum = 0;
  for (const HloShape* leaf : leaves()) {
    std::int64_t product = 1;
    for (const std::int64_t extent : leaf->dims) product *= extent;
    sum += product;
  }
  return sum;
}

std::int64_t HloShape::bytes() const {
  std::int64_t sum = 0;
  for (const HloShape* leaf : leaves()) {
    std::int64_t product = *hlo_element_bytes(leaf->type);
    for (const std::int64_t extent : leaf->dims) product *= extent;
    sum += product;
  }
  return sum;
}

std::string_view HloInstruction::attribute(std::string_view key) const {
  const auto found =
      std::ranges::find(attributes, key, [](const auto& pair) { return pair.first; });
  return found == attributes.end() ? std::string_view{} : found->second;
}

const HloInstruction* HloComputation::find(std::string_view instruction) const {
  const auto found = index.find(instruction);
  return found == index.end() ? nullptr : &instructions[found->second];
}

std::string_view hlo_name(std::string_view word) {
  const std::size_t blank = word.find_last_of(" \t/");
  if (blank != std::string_view::npos) word.remove_prefix(blank + 1);
  if (word.starts_with('%')) word.remove_prefix(1);
  return word;
}

std::vector<std::string_view> hlo_parts(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  std::int64_t depth = 0;
  bool quoted = false;
  const auto cut = [&](std::size_t end) {
    const std::string_view part = trimmed(text.substr(begin, end - begin));
    if (!part.empty()) parts.push_back(part);
    begin = end + 1;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (opens(c) || closes(c))) {
      depth += opens(c) ? 1 : -1;
    } else if (!quoted && c == ',' && depth == 0) {
      cut(i);
    }
  }
  if (begin < text.size()) cut(text.size());
  return parts;
}

std::optional<std::vector<std::int64_t>> hlo_integers(std::string_view text) {
  if (text.size() < 2 || !opens(text.front()) || !closes(text.back())) return std::nullopt;
  std::vector<std::int64_t> values;
  for (const std::string_view part : hlo_parts(text.substr(1, text.size() - 2))) {
    const std::optional<std::int64_t> value = integer_of(part);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

HloModule read_hlo_module(const Source& file) { return Reader(file).run(); }

}  // namespace dovetail::imports
