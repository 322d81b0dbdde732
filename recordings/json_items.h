// The objects of a JSON text one at a time: of a top-level array, or one after the other (JSON lines).
//
// For files that are appended to while a job runs, so that their end may be missing: an array that is
// never closed, a last object that is cut off. Only the bounds of an object are looked for here; the
// visitor parses it. Memory is that of one object, whatever the file's size.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace dovetail::imports {

struct JsonItem {
  std::string_view text;  // from its opening to its closing brace
  std::size_t line = 1;   // where it begins
};

struct JsonItemsEnd {
  std::size_t items = 0;
  bool is_cut_off = false;   // the last object has no end
  std::size_t cut_line = 0;  // where that one begins
  std::size_t other_lines =
      0;  // lines between objects that hold anything but ',', '[', ']' and blanks
};

// Calls `visit` for each object in order. Throws InputError where objects nest deeper than 64 levels.
JsonItemsEnd for_each_json_item(const std::string& name, std::string_view text,
                                const std::function<void(const JsonItem&)>& visit);

}  // namespace dovetail::imports
