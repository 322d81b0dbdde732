// Chakra's three forms to nodes. Protobuf's wire format is read by hand: five kinds of fields are all there
// is (protobuf.dev/programming-guides/encoding).
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "base/json_reader.h"
#include "recordings/chakra.h"
#include "recordings/json_stream.h"
#include "recordings/limits.h"

#include <limits>

namespace dovetail::imports {
namespace {

constexpr std::int64_t kMostUs = std::int64_t{1} << 52;
constexpr std::int64_t kMostId = std::numeric_limits<std::int64_t>::max();

// NodeType and CollectiveCommType of et_def.proto.
constexpr std::uint64_t kCompNode = 4;
constexpr std::uint64_t kCollectiveNode = 7;
constexpr std::int64_t kAllReduce = 0;

ChakraNode::Type type_of(std::uint64_t type) {
  if (type == kCompNode) return ChakraNode::Type::Compute;
  return type == kCollectiveNode ? ChakraNode::Type::Collective : ChakraNode::Type::Other;
}

// ---------------------------------------------------------------------------------- protobuf

struct Field {
  std::uint64_t number = 0;
  std::uint64_t value = 0;   // of varint and fixed fields
  std::string_view bytes{};  // of length-delimited ones
};

// The fields of one message. The text may end anywhere; a field must not.
class Wire {
 public:
  Wire(std::string_view bytes, const std::string& place) : bytes_(bytes), place_(place) {}

  [[nodiscard]] bool done() const { return at_ == bytes_.size(); }

  Field next() {
    const std::uint64_t tag = varint();
    Field field{.number = tag >> 3};
    switch (tag & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 2:
        field.bytes = taken(varint());
        break;
      case 5:
        field.value = fixed(4);
        break;
      default:
        fail("a field of a kind that protobuf does not have");
    }
    return field;
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (done()) fail("a number is cut off");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    fail("a number has more than ten bytes");
  }

  std::string_view taken(std::uint64_t size) {
    if (size > bytes_.size() - at_) fail("a field is longer than what holds it");
    const std::string_view part = bytes_.substr(at_, static_cast<std::size_t>(size));
    at_ += part.size();
    return part;
  }

 private:
  std::uint64_t fixed(std::size_t size) {
    std::uint64_t value = 0;
    const std::string_view part = taken(size);
    for (std::size_t i = size; i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(part[i]);
    }
    return value;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(place_ + ": no Chakra trace (.et): " + what);
  }

  std::string_view bytes_;
  const std::string& place_;
  std::size_t at_ = 0;
};

std::int64_t limited(std::uint64_t value, std::int64_t most, const std::string& place,
                     const char* what) {
  if (value > static_cast<std::uint64_t>(most)) {
    throw InputError(place + ": " + what + ": expected at most " + std::to_string(most) +
                     ", found " + std::to_string(value));
  }
  return static_cast<std::int64_t>(value);
}

// An attribute's name and its value, where that is a number or a truth value (fields 7 to 27).
void read_attribute(std::string_view bytes, const std::string& place, ChakraNode& node) {
  Wire wire(bytes, place);
  std::string_view name;
  std::uint64_t value = 0;
  bool is_signed = false;  // sint32, sint64: zigzag
  while (!wire.done()) {
    const Field field = wire.next();
    if (field.number == 1) name = field.bytes;
    if (field.number < 7 || field.number > 27 || !field.bytes.empty()) continue;
    value = field.value;
    is_signed = field.number == 15 || field.number == 17;
  }
  if (is_signed) value = value >> 1 ^ (~(value & 1) + 1);
  if (name == "is_cpu_op") node.is_cpu_op = value != 0;
  if (name == "comm_type") node.is_all_reduce = value == kAllReduce;
  if (name == "comm_size") node.comm_bytes = limited(value, kMostBytes, place, "comm_size");
}

ChakraNode read_node(std::string_view bytes, const std::string& place) {
  Wire wire(bytes, place);
  ChakraNode node;
  while (!wire.done()) {
    const Field field = wire.next();
    switch (field.number) {
      case 1:
        node.id = field.value;
        break;
      case 2:
        node.name = field.bytes;
        break;
      case 3:
        node.type = type_of(field.value);
        break;
      case 5:
        if (field.bytes.empty()) {
          node.needs.push_back(field.value);
        } else {  // packed
          Wire packed(field.bytes, place);
          while (!packed.done()) node.needs.push_back(packed.varint());
        }
        break;
      case 6:
        node.start_us = limited(field.value, kMostUs, place, "start_time_micros");
        break;
      case 7:
        node.duration_us = limited(field.value, kMostUs, place, "duration_micros");
        break;
      case 10:
        read_attribute(field.bytes, place, node);
        break;
      default:
        break;
    }
  }
  return node;
}

std::vector<ChakraNode> read_protobuf(const Source& file) {
  Wire wire(file.text, file.name);
  std::vector<ChakraNode> nodes;
  static_cast<void>(wire.taken(wire.varint()));  // GlobalMetadata
  while (!wire.done()) {
    const std::string place = file.name + ": node " + std::to_string(nodes.size());
    nodes.push_back(read_node(wire.taken(wire.varint()), place));
  }
  return nodes;
}

// ---------------------------------------------------------------------------------- JSON

// Absent: 0. Protobuf's JSON writes 64 bits in quotes.
std::int64_t number_at(JsonObject& object, const char* key, std::int64_t most) {
  return object.integer_or(key, 0, 0, most);
}

void add_needs(JsonObject& object, const char* key, ChakraNode& node) {
  if (!object.has(key)) return;
  for (const JsonValue item : object.array(key)) {
    node.needs.push_back(static_cast<std::uint64_t>(item.integer(0)));
  }
}

bool truth_at(JsonObject& object, const char* key) {
  if (!object.has(key)) return false;
  const JsonValue value = object.at(key);
  return value.is_number() ? value.number() != 0 : value.boolean();
}

// A node of the feeder's form.
ChakraNode read_feeder_node(JsonObject object) {
  ChakraNode node;
  node.id = static_cast<std::uint64_t>(object.integer("Id", 0));
  node.name = object.string_or("Name", "");
  node.type = type_of(static_cast<std::uint64_t>(object.integer("NodeType", 0, 100)));
  node.duration_us = number_at(object, "runtime", kMostUs);
  node.is_cpu_op = truth_at(object, "is_cpu_op");
  node.comm_bytes = number_at(object, "comm_size", kMostBytes);
  node.is_all_reduce =
      object.has("comm_type") && number_at(object, "comm_type", kMostId) == kAllReduce;
  add_needs(object, "data_deps", node);
  return node;
}

void read_json_attributes(JsonObject& object, ChakraNode& node) {
  if (!object.has("attr")) return;
  for (const JsonValue item : object.array("attr")) {
    JsonObject attribute = item.object();
    const std::string name = attribute.string_or("name", "");
    if (name == "is_cpu_op") node.is_cpu_op = truth_at(attribute, "boolVal");
    for (const char* const key : {"int64Val", "uint64Val", "int32Val", "uint32Val"}) {
      if (!attribute.has(key)) continue;
      if (name == "comm_size") node.comm_bytes = number_at(attribute, key, kMostBytes);
      if (name == "comm_type")
        node.is_all_reduce = number_at(attribute, key, kMostId) == kAllReduce;
    }
  }
}

// A node as protobuf's own JSON.
ChakraNode read_jsonizer_node(JsonObject object) {
  ChakraNode node;
  node.id = static_cast<std::uint64_t>(number_at(object, "id", kMostId));
  node.name = object.string_or("name", "");
  const std::string type = object.string_or("type", "");
  if (type == "COMP_NODE") node.type = ChakraNode::Type::Compute;
  if (type == "COMM_COLL_NODE") node.type = ChakraNode::Type::Collective;
  node.start_us = number_at(object, "startTimeMicros", kMostUs);
  node.duration_us = number_at(object, "durationMicros", kMostUs);
  add_needs(object, "dataDeps", node);
  read_json_attributes(object, node);
  return node;
}

std::vector<ChakraNode> read_json(const Source& file) {
  std::vector<ChakraNode> nodes;
  JsonStream stream(file.name, file.text);
  while (const auto item = stream.next_item()) {
    const JsonFile json(file.name + ": line " + std::to_string(item->line), item->text,
                        JsonNumbers::Loose);
    JsonObject root = json.root();
    if (root.has("workload_graph")) {
      for (const JsonValue node : root.array("workload_graph")) {
        nodes.push_back(read_feeder_node(node.object()));
      }
    } else if (root.has("schema") && root.has("nodes")) {
      throw InputError(file.name +
                       ": PyTorch's execution trace, which has no times; join it with a Kineto "
                       "profile by chakra_trace_link and chakra_converter, or import the profile: "
                       "dovetail import kineto");
    } else if (root.has("id")) {
      nodes.push_back(read_jsonizer_node(json.root()));
    }
  }
  if (const std::size_t line = stream.items_end().cut_line; line > 0) {
    throw InputError(file.name + ": line " + std::to_string(line) + ": the last object is cut off");
  }
  return nodes;
}

}  // namespace

std::vector<ChakraNode> read_chakra_nodes(const Source& file) {
  const std::size_t first = file.text.find_first_not_of(" \t\r\n");
  const bool is_json =
      first != std::string_view::npos && (file.text[first] == '{' || file.text[first] == '[');
  return is_json ? read_json(file) : read_protobuf(file);
}

}  // namespace dovetail::imports
