// JSON of the parts that cluster files and cost files share: kernels, rates, hosts, contention.
//
// Reading is strict: a key that is not known is an error with the nearest known one. Whoever includes
// this reads or writes JSON itself (models/*_json.cc).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json_reader.h"
#include "models/costs/costs.h"

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::models {

inline constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
inline constexpr double kMostUs = kLongestTime.count() / 1e3;
inline constexpr double kLeastRate = 1;    // bytes or FLOP per second
inline constexpr double kMostRate = 1e21;  // beyond any machine
inline constexpr double kLeastUs = 0.001;  // one nanosecond: a time of 0 is a missing measurement

// Optional keys of an object: known, so that a misspelt one is told the right word.
void optional_keys(JsonObject& object, std::initializer_list<std::string_view> keys);

Duration positive_us(JsonObject& object, std::string_view key);
Duration us_or(JsonObject& object, std::string_view key, Duration fallback);
std::optional<Duration> optional_us(JsonObject& object, std::string_view key);
std::optional<double> optional_number(JsonObject& object, std::string_view key);

Roofline read_roofline(JsonObject object);
// "gemm", "memory" or "kernels" of the object.
KernelWork read_work(JsonObject& object);
std::vector<MeasuredKernel> read_kernels(const JsonArray& array);
UnitKernel read_unit_kernel(JsonObject object);
CopyModel read_copy(JsonObject object);
std::map<PassKind, PassModel> read_passes(JsonObject object);
// Keys that are absent keep what `host` says where the kind is the same, else 0.
HostModel read_host(JsonObject object, HostModel host);
Contention read_contention(JsonObject object);

// A number that JSON can hold; a check otherwise.
double finite(double value);
void put(nlohmann::ordered_json& object, const char* key, const std::optional<Duration>& time);
void put(nlohmann::ordered_json& object, const char* key, const std::optional<double>& number);
void put(nlohmann::ordered_json& object, const char* key, const std::string& text);

nlohmann::ordered_json written(const Roofline& roofline);
nlohmann::ordered_json written(const schedule::GemmWork& work);
// Under the key that read_work reads.
void put_work(nlohmann::ordered_json& object, const KernelWork& work);
nlohmann::ordered_json written(const MeasuredKernel& kernel);
nlohmann::ordered_json written(const UnitKernel& unit);
nlohmann::ordered_json written(const CopyModel& copy);
nlohmann::ordered_json written(const std::map<PassKind, PassModel>& passes);
nlohmann::ordered_json written(const HostModel& host);
nlohmann::ordered_json written(const Contention& contention);

}  // namespace dovetail::models
