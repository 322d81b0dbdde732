// Samples and first weights of the training job, made by hashing their position, so that every
// rank and backend has the same ones without a file.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/training/data.h"

#include "base/random.h"

namespace dovetail::exec::training {

Sample sample(std::int64_t number, std::int64_t vocabulary) {
  const auto words = static_cast<std::uint64_t>(vocabulary);
  const std::uint64_t hash = splitmix64(static_cast<std::uint64_t>(number));
  const std::uint64_t token = hash % words;
  const bool noise = (hash >> 40) % 8 == 0;
  const std::uint64_t next = noise ? (hash >> 20) % words : (7 * token + 3) % words;
  return {.token = static_cast<std::int64_t>(token), .next = static_cast<std::int64_t>(next)};
}

void fill_first_weights(std::string_view parameter, std::span<float> weights) {
  std::uint64_t seed = 0;
  for (const char letter : parameter) {
    seed = splitmix64(seed ^ static_cast<std::uint64_t>(static_cast<unsigned char>(letter)));
  }
  Random random(seed);
  for (float& weight : weights) weight = static_cast<float>(0.4 * random.uniform() - 0.2);
}

}  // namespace dovetail::exec::training
