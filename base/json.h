// nlohmann/json, and, where nothing is inlined anyway, each of its functions compiled once, in json.cc, and
// not in every file that uses it: a fifteenth of the time of a sanitizer build. Optimised code would lose
// as much, for it looks into all of them all the same.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

#ifdef DOVETAIL_JSON_ONCE  // scripts/cmake/flags.cmake
// What is listed here is what takes long: both kinds of value, what holds their members, reading from a
// string, and writing. DOVETAIL_JSON_TEMPLATE: `extern template`, and in json.cc `template`.
#define DOVETAIL_JSON_TEMPLATES(DOVETAIL_JSON_TEMPLATE)                              \
  DOVETAIL_JSON_TEMPLATE class nlohmann::basic_json<>;                               \
  DOVETAIL_JSON_TEMPLATE class nlohmann::basic_json<nlohmann::ordered_map>;          \
  DOVETAIL_JSON_TEMPLATE class std::vector<nlohmann::json>;                          \
  DOVETAIL_JSON_TEMPLATE class std::vector<nlohmann::ordered_json>;                  \
  DOVETAIL_JSON_TEMPLATE class std::map<std::string, nlohmann::json, std::less<>>;   \
  DOVETAIL_JSON_TEMPLATE class nlohmann::detail::serializer<nlohmann::json>;         \
  DOVETAIL_JSON_TEMPLATE class nlohmann::detail::serializer<nlohmann::ordered_json>; \
  DOVETAIL_JSON_TEMPLATE nlohmann::json nlohmann::json::parse(                       \
      const std::string&, nlohmann::json::parser_callback_t, bool, bool);            \
  DOVETAIL_JSON_TEMPLATE nlohmann::json nlohmann::json::parse(                       \
      std::string&&, nlohmann::json::parser_callback_t, bool, bool);                 \
  DOVETAIL_JSON_TEMPLATE nlohmann::ordered_json nlohmann::ordered_json::parse(       \
      const std::string&, nlohmann::ordered_json::parser_callback_t, bool, bool);    \
  DOVETAIL_JSON_TEMPLATE nlohmann::ordered_json nlohmann::ordered_json::parse(       \
      std::string&&, nlohmann::ordered_json::parser_callback_t, bool, bool)

DOVETAIL_JSON_TEMPLATES(extern template);
#endif
