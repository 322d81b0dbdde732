// Parses a JSON file and does nothing with it: what import kineto is held against.
//
//   plain_parse FILE [pull | on-demand | dom]
//
//   pull        our own JsonStream, in pieces: every value is passed over, nothing is kept
//   on-demand   simdjson over the whole file in memory: name, ts and dur of every event are read
//   dom         simdjson's tree of the whole file
//
// The last two need libsimdjson-dev; without it they are refused. Prints seconds and events; memory is for
// /usr/bin/time -v to tell (scripts/campaigns/bench_import.sh).
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "recordings/byte_source.h"
#include "recordings/json_stream.h"

#ifdef DOVETAIL_SIMDJSON
#include <simdjson.h>
#endif

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace dovetail::bench {
namespace {

// Each returns how many events the file holds.
std::int64_t pull(const std::string& path) {
  imports::ByteSource source = imports::ByteSource::file(path, {});
  imports::JsonStream json(source);
  std::int64_t events = 0;
  json.enter_object();
  while (const auto key = json.next_key()) {
    if (*key != "traceEvents") {
      json.skip();
      continue;
    }
    json.enter_array();
    for (; json.next_element(); ++events) json.skip();
  }
  return events;
}

#ifdef DOVETAIL_SIMDJSON
std::int64_t on_demand(const std::string& path) {
  const simdjson::padded_string text = simdjson::padded_string::load(path);
  simdjson::ondemand::parser parser;
  simdjson::ondemand::document document = parser.iterate(text);
  std::int64_t events = 0;
  double sum = 0;
  for (simdjson::ondemand::object event : document["traceEvents"]) {
    for (auto field : event) {
      const std::string_view key = field.unescaped_key();
      if (key == "name") {
        sum += static_cast<double>(std::string_view(field.value()).size());
      } else if (key == "ts" || key == "dur") {
        sum += double(field.value());
      }
    }
    ++events;
  }
  if (sum == 0) std::fputs("no event has a time\n", stderr);
  return events;
}

std::int64_t dom(const std::string& path) {
  simdjson::dom::parser parser;
  const simdjson::dom::element root = parser.load(path);
  return static_cast<std::int64_t>(simdjson::dom::array(root["traceEvents"]).size());
}
#endif

std::int64_t parse(const std::string& path, std::string_view how) {
  if (how == "pull") return pull(path);
#ifdef DOVETAIL_SIMDJSON
  if (how == "on-demand") return on_demand(path);
  if (how == "dom") return dom(path);
#endif
  throw InputError("expected pull, or with libsimdjson-dev on-demand or dom");
}

int run(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fputs("usage: plain_parse FILE [pull | on-demand | dom]\n", stderr);
    return 2;
  }
  const std::string how = argc == 3 ? argv[2] : "pull";
  try {
    const auto begin = std::chrono::steady_clock::now();
    const std::int64_t events = parse(argv[1], how);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%-10s %8.3f s  %lld events\n", how.c_str(), took.count(),
                static_cast<long long>(events));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plain_parse: %s\n", error.what());
    return 2;
  }
}

}  // namespace
}  // namespace dovetail::bench

int main(int argc, char** argv) { return dovetail::bench::run(argc, argv); }
