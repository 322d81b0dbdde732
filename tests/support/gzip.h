// A text as gzip packs it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zlib.h>

#include <gtest/gtest.h>

#include <string>

namespace dovetail::testing {

inline std::string gzipped(std::string text) {
  constexpr int kGzipWindow = 15 + 16;
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, kGzipWindow, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string result(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

}  // namespace dovetail::testing
