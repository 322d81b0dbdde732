// Tests of traces/trace_json.h: exact round trips, and a message for each kind of broken file.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/trace_json.h"

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "tests/support/cases.h"
#include "tests/traces/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <ostream>
#include <string>

namespace dovetail::traces {
namespace {

using sample::Builder;
using ::testing::HasSubstr;

Trace parse(const std::string& text) { return read_trace(JsonFile("t.json", text)); }

// The message of the InputError, or what came instead.
std::string message(const std::string& text) {
  try {
    parse(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t found = text.find(from);
  EXPECT_NE(found, std::string::npos) << from;
  return text.replace(found, from.size(), to);
}

std::string random_name(Random& random) {
  static constexpr std::string_view kPieces[] = {"fc1",  ".", "\"", "\\", "\n",
                                                 "\x01", "é", "層", " "};
  std::string name;
  for (std::int64_t n = random.between(0, 6); n > 0; --n) {
    name += kPieces[random.between(0, std::size(kPieces) - 1)];
  }
  return name;
}

Trace random_trace(std::uint64_t seed) {
  Random random(seed);
  Trace trace;
  trace.provenance = {random.between(0, 1) == 0 ? Origin::Simulated : Origin::Measured,
                      random_name(random),
                      random_name(random),
                      random_name(random),
                      random_name(random),
                      {}};
  for (std::int64_t n = random.between(0, 3); n > 0; --n) {
    trace.provenance.notes[random_name(random)] = random_name(random);
  }
  const auto stream_count = static_cast<std::int32_t>(random.between(1, 3));
  for (std::int32_t i = 0; i < stream_count; ++i) {
    trace.streams.push_back({StreamId{2 * i}, random_name(random)});
  }
  const auto command_count = static_cast<std::int32_t>(random.between(1, 9));
  for (std::int32_t i = 0; i < command_count; ++i) {
    CommandInfo info;
    info.id = CommandId{3 * i};
    info.kind = static_cast<SpanKind>(random.between(0, 4));
    info.phase = static_cast<SpanPhase>(random.between(0, 3));
    info.name = random_name(random);
    if (random.between(0, 1) == 0) info.bucket = BucketId{i};
    info.bytes = Bytes(random.between(0, 1L << 40));
    info.bus_bytes = Bytes(random.between(0, 1) * random.between(0, 1L << 40));
    if (random.between(0, 1) == 0) info.after = CommandId{i};
    for (std::int64_t n = random.between(0, 2); n > 0; --n) {
      info.tensors.push_back({random_name(random), Bytes(n), std::nullopt});
      if (random.between(0, 1) == 0) info.tensors.back().producer = CommandId{i};
    }
    trace.commands.push_back(info);
  }
  trace.world_size = 7;
  trace.ranks = {Rank{1}, Rank{4}};
  for (const Rank rank : trace.ranks) {
    for (const StreamInfo& stream : trace.streams) {
      Instant now{};
      for (std::int64_t n = random.between(1, 12); n > 0; --n) {
        const CommandInfo& info =
            trace.commands[static_cast<std::size_t>(random.between(0, command_count - 1))];
        const Instant start = now + Duration(random.between(0, 1L << 36));
        now = start + Duration(random.between(0, 3));
        Span span{info.id, rank, stream.id, 0, start, now, std::nullopt};
        if (info.kind == SpanKind::Collective && random.between(0, 1) == 0) {
          span.transfer_start = start + Duration(random.between(0, (now - start).count()));
        }
        trace.spans.push_back(span);
      }
    }
  }
  return trace;
}

TEST(TraceJsonTest, ReadsBackWhatItWrote) {
  for (const Trace& trace : {sample::predicted(), sample::measured()}) {
    EXPECT_EQ(parse(to_json(trace)), trace);
  }
}

TEST(TraceJsonTest, ReadsBackRandomTraces) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const Trace trace = random_trace(seed);
    EXPECT_EQ(parse(to_json(trace)), trace);
  }
}

TEST(TraceJsonTest, LoadsAFile) {
  const std::string path =
      ::testing::TempDir() + "dovetail_trace_json." + std::to_string(::getpid()) + ".json";
  write_file(path, to_json(sample::measured()));
  EXPECT_EQ(load_trace(path), sample::measured());
  std::filesystem::remove(path);
}

TEST(TraceJsonTest, WritesAByteThatIsNoUtf8AsTheReplacementCharacter) {
  Trace trace = sample::predicted();
  // A lone continuation byte, an overlong slash, a surrogate and a cut sequence; then a valid one.
  trace.provenance.machine = "a\x80|\xC0\xAF|\xED\xA0\x80|\xE2\x82|\xE2\x82\xAC";
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(
      parse(to_json(trace)).provenance.machine,
      "a" + bad + "|" + bad + bad + "|" + bad + bad + bad + "|" + bad + bad + "|\xE2\x82\xAC");
}

struct Broken {
  const char* name;
  const char* from;
  const char* to;
  const char* message;
  friend std::ostream& operator<<(std::ostream& out, const Broken& broken) {
    return out << broken.name;
  }
};

class TraceJsonBadInputTest : public ::testing::TestWithParam<Broken> {};

TEST_P(TraceJsonBadInputTest, SaysWhatIsWrongAndWhere) {
  // Three spans: [0,0,0,0,0,10000] and [1,0,0,0,10000,20000] on the compute stream,
  // [4,0,1,0,20000,35000,20000] on the communication stream; ranks 0 of a world of 2.
  Builder builder = sample::step_commands();
  builder.trace().world_size = 2;
  builder.ran({.command = 0, .from = 0, .to = 10}).ran({.command = 1, .from = 10, .to = 20});
  builder.ran({.command = 4, .stream = 1, .from = 20, .to = 35, .transfer = 20});
  const std::string good = to_json(builder.build());
  ASSERT_EQ(message(good), "no error");
  EXPECT_THAT(message(replaced(good, GetParam().from, GetParam().to)),
              HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, TraceJsonBadInputTest,
    ::testing::Values(
        Broken{"Schema", "dovetail.trace/1", "dovetail.trace/9",
               "t.json: /schema: expected \"dovetail.trace/1\", found \"dovetail.trace/9\""},
        Broken{"Kind", "\"kind\": \"trace\"", "\"kind\": \"plan\"",
               "t.json: /kind: expected one of \"trace\", found \"plan\""},
        Broken{"MisspeltKey", "\"world_size\"", "\"world_sise\"",
               "t.json: /: missing key \"world_size\"; is \"world_sise\" a misspelling of it?"},
        Broken{"UnknownKey", "\"steps\": 1", "\"steps\": 1, \"stops\": 1",
               "t.json: /stops: unknown key; did you mean \"steps\"?"},
        Broken{"Origin", "\"simulated\"", "\"guessed\"",
               "t.json: /provenance/origin: expected one of \"simulated\", \"measured\", found "
               "\"guessed\""},
        Broken{"SpanKind", "\"kind\": \"compute\"", "\"kind\": \"thread\"",
               "t.json: /commands/0/kind: expected one of \"compute\", \"copy\", \"collective\", "
               "\"wait\", \"enqueue\", \"kernel\", found \"thread\""},
        Broken{"NegativeSize", "\"size_bytes\": 0", "\"size_bytes\": -1",
               "t.json: /commands/0/size_bytes: expected an integer >= 0, found -1"},
        Broken{"CommandTwice", "{\"id\": 1, \"kind\"", "{\"id\": 0, \"kind\"",
               "t.json: /commands/1: command ids must rise"},
        Broken{"StreamTwice", "{\"id\": 1, \"name\"", "{\"id\": 0, \"name\"",
               "t.json: /streams/1: stream ids must rise"},
        Broken{"RankTwice", "\"ranks\": [0]", "\"ranks\": [0,0]",
               "t.json: /ranks/1: ranks must rise"},
        Broken{"RankOutsideTheWorld", "\"ranks\": [0]", "\"ranks\": [0,2]",
               "t.json: /ranks/1: expected an integer from 0 to 1, found 2"},
        Broken{"SpanFields", "\"start_ns\"", "\"start_us\"",
               "t.json: /span_fields/4: expected one of \"start_ns\", found \"start_us\""},
        Broken{"SpanFieldsCut", ", \"transfer_start_ns\"", "",
               "t.json: /span_fields: expected 7 names, found 6"},
        Broken{"UnknownCommand", "[0,0,0,0,0,10000]", "[99,0,0,0,0,10000]",
               "t.json: /spans/0/0: command 99 is not listed in /commands"},
        Broken{"SpanRankOutsideTheWorld", "[0,0,0,0,0,10000]", "[0,7,0,0,0,10000]",
               "t.json: /spans/0/1: rank 7 is outside the world of 2"},
        Broken{"SpanRankNotListed", "[0,0,0,0,0,10000]", "[0,1,0,0,0,10000]",
               "t.json: /spans/0/1: rank 1 is not listed in /ranks"},
        Broken{"UnknownStream", "[0,0,0,0,0,10000]", "[0,0,5,0,0,10000]",
               "t.json: /spans/0/2: stream 5 is not listed in /streams"},
        Broken{"StepOutsideTheTrace", "[0,0,0,0,0,10000]", "[0,0,0,1,0,10000]",
               "t.json: /spans/0/3: expected an integer from 0 to 0, found 1"},
        Broken{"TimeWithAFraction", "[0,0,0,0,0,10000]", "[0,0,0,0,0.5,10000]",
               "t.json: /spans/0/4: expected an integer from 0 to 999999999999999, found 0.5"},
        Broken{"EndBeforeStart", "[1,0,0,0,10000,20000]", "[1,0,0,0,10000,9999]",
               "t.json: /spans/1: ends at 9999 ns, before its start at 10000 ns"},
        Broken{"Overlap", "[1,0,0,0,10000,20000]", "[1,0,0,0,9999,20000]",
               "t.json: /spans/1: starts at 9999 ns on rank 0, stream 0, where the span before it "
               "ends at 10000 ns"},
        Broken{"OutOfOrder", "[0,0,0,0,0,10000]", "[0,0,0,0,30000,40000]",
               "t.json: /spans/1: out of order; spans are sorted by rank, stream and start"},
        Broken{"TransferBeforeStart", "35000,20000]", "35000,19999]",
               "t.json: /spans/2: transfer starts at 19999 ns, outside the span"},
        Broken{"TransferAfterEnd", "35000,20000]", "35000,35001]",
               "t.json: /spans/2: transfer starts at 35001 ns, outside the span"},
        Broken{"TransferOfAnOp", "[0,0,0,0,0,10000]", "[0,0,0,0,0,10000,5]",
               "t.json: /spans/0/6: only a collective transfers; command 0 is a compute"},
        Broken{"SpanTooShort", "[0,0,0,0,0,10000]", "[0,0,0,0,0]",
               "t.json: /spans/0: expected 6 or 7 entries as in /span_fields, found 5"},
        Broken{"RankWithoutSpans", "\"ranks\": [0]", "\"ranks\": [0,1]",
               "t.json: /spans: rank 1 has none"},
        Broken{"StepWithoutSpans", "\"steps\": 1", "\"steps\": 2",
               "t.json: /spans: step 1 has none"},
        Broken{"MoreStepsThanSpans", "\"steps\": 1", "\"steps\": 2000000000",
               "t.json: /steps: 2000000000 steps, but only 3 spans"}),
    [](const ::testing::TestParamInfo<Broken>& param) { return std::string(param.param.name); });

TEST(TraceJsonTest, AnswersEveryDamageWithATraceOrAnInputError) {
  const std::string good = to_json(sample::predicted());
  int refused = 0;
  for (std::uint64_t seed = 0; seed < testing::cases(3000U); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::string text = good;
    for (std::int64_t n = random.between(1, 3); n > 0; --n) {
      const auto place =
          static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(text.size()) - 1));
      static constexpr std::string_view kBytes = "0123456789-.,:[]{}\"e n\xFF";
      const char byte = kBytes[static_cast<std::size_t>(
          random.between(0, static_cast<std::int64_t>(kBytes.size()) - 1))];
      if (random.between(0, 1) == 0) {
        text[place] = byte;
      } else {
        text.erase(place, static_cast<std::size_t>(random.between(1, 40)));
      }
    }
    try {
      const Trace trace = parse(text);
      EXPECT_EQ(parse(to_json(trace)), trace);
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("t.json: "));
      ++refused;
    }
  }
  EXPECT_GT(refused, testing::cases(1000));
}

}  // namespace
}  // namespace dovetail::traces
