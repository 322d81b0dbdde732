// The reader on oddities of real files and on input that was made to break it.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "recordings/json_stream.h"
#include "recordings/kineto/reader.h"
#include "recordings/timeline/step_figures.h"
#include "recordings/trace_folder.h"
#include "tests/recordings/kineto/traces.h"
#include "tests/support/errors.h"
#include "tests/support/gzip.h"

namespace dovetail::imports {
namespace {

using dovetail::testing::gzipped;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::job_of;
using testing::read_text;
using testing::trace_file;

std::string refusal(const std::string& text) {
  try {
    static_cast<void>(read_text(text));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string event(const std::string& fields) {
  return R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,)" + fields + "}";
}

TEST(KinetoReaderTest, TimesAreExactNanoseconds) {
  EXPECT_EQ(nanoseconds_of("4458676522690.655"), 4458676522690655);
  EXPECT_EQ(nanoseconds_of("1707417525512283"), 1707417525512283000);
  EXPECT_EQ(nanoseconds_of("0.5"), 500);
  EXPECT_EQ(nanoseconds_of("-1.25"), -1250);
  EXPECT_EQ(nanoseconds_of("1e3"), 1000000);
  EXPECT_EQ(nanoseconds_of("NaN"), std::nullopt);
  EXPECT_EQ(nanoseconds_of("-Infinity"), std::nullopt);
  EXPECT_EQ(nanoseconds_of("9223372036854775808"), std::nullopt);
  EXPECT_EQ(nanoseconds_of("1e300"), std::nullopt);
}

TEST(KinetoReaderTest, GzipWithinGzipIsUnpacked) {
  const std::string text = "[" + event(R"("ts":1,"dur":1)") + "]";
  EXPECT_EQ(read_text(gzipped(gzipped(text))).events.size(), 1U);
  EXPECT_EQ(read_text(gzipped(gzipped(text + std::string(100'000, ' ')))).events.size(), 1U);
  std::string deep = text;
  for (int level = 0; level < 6; ++level) deep = gzipped(deep);
  EXPECT_THAT(refusal(deep), HasSubstr("over and over"));
}

// Others name what unpacks them, also within gzip.
TEST(KinetoReaderTest, OtherPackersAreNamed) {
  const std::string tar = std::string(257, 'x') + "ustar" + std::string(250, '\0');
  for (const auto& [bytes, how] : std::vector<std::pair<std::string, std::string>>{
           {std::string("PK\x03\x04zzzz"), "a zip archive, which is not read: unzip trace.json"},
           {std::string("\xFD"
                        "7zXZ\0\0",
                        7),
            "xz -d trace.json"},
           {std::string("\x28\xB5\x2F\xFD\x04"), "zstd -d trace.json"},
           {std::string("BZh91AY"), "bzip2 -d trace.json"},
           {tar, "tar -xf trace.json"}}) {
    EXPECT_THAT(refusal(bytes), HasSubstr(how));
    EXPECT_THAT(refusal(gzipped(bytes)), HasSubstr(how));
  }
}

class TraceFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("dovetail_traces_" + std::to_string(::getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text = R"({"traceEvents":[]})") {
    std::filesystem::create_directories((folder_ / name).parent_path());
    write_file((folder_ / name).string(), text);
  }
  // Names below the folder.
  std::vector<std::string> found() {
    notes_.clear();
    std::vector<std::string> names;
    TraceFiles files = find_traces({folder_.string()});
    for (const std::string& file : files.files) {
      names.push_back(std::filesystem::relative(file, folder_).string());
    }
    notes_ = files.notes;
    return names;
  }

  std::filesystem::path folder_;
  std::vector<std::string> notes_;
};

TEST_F(TraceFolderTest, OtherFilesAreLeftOutAndNamed) {
  write("rank1.json");
  write("rank0.json.gz", gzipped("[\n" + event(R"("ts":1,"dur":1)") + "]"));
  write("summary.json", R"({"loss":1})");
  write("notes.txt", "x");
  EXPECT_THAT(found(), ElementsAre("rank0.json.gz", "rank1.json"));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("summary.json, which does not begin as a trace does")));
}

TEST_F(TraceFolderTest, AFolderARankIsAJob) {
  write("rank_0/trace.json");
  write("rank_1/trace.json");
  write("rank_10/trace.json");
  write("logs/out.json", "{}");
  EXPECT_THAT(found(), ElementsAre("rank_0/trace.json", "rank_1/trace.json", "rank_10/trace.json"));
}

// As torchtitan writes them: two windows of one run are not one job.
TEST_F(TraceFolderTest, OfSeveralIterationsTheLastIsRead) {
  for (const std::string iteration : {"10", "9", "100"}) {
    write("iteration_" + iteration + "/rank0_trace.json");
    write("iteration_" + iteration + "/rank1_trace.json");
  }
  EXPECT_THAT(found(),
              ElementsAre("iteration_100/rank0_trace.json", "iteration_100/rank1_trace.json"));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("of 3 folders iteration_N")));
}

TEST_F(TraceFolderTest, AFolderWithoutTracesIsRefused) {
  write("a/b/c/d/e/deep.json");
  EXPECT_THAT(dovetail::testing::error_of([&] { find_traces({folder_.string()}); }),
              HasSubstr("a folder without traces"));
}

TEST(KinetoReaderTest, AnEventWithoutAFiniteTimeIsLeftOut) {
  const Recording trace =
      read_text("[" + event(R"("ts":NaN,"dur":1)") + "," + event(R"("ts":1,"dur":Infinity)") + "," +
                event(R"("ts":99999999999999999999,"dur":1)") + "," + event(R"("ts":1,"dur":-5)") +
                "," + event(R"("ts":2,"dur":1)") + ",]");
  EXPECT_EQ(trace.events.size(), 1U);
  EXPECT_THAT(trace.problems, ElementsAre("4 events have no finite time and are left out"));
}

// 0.1 / 0 as C, C++, Python and Microsoft's runtime print it, where nobody needs the number.
TEST(KinetoReaderTest, NumbersThatAreNoneAreReadWhereTheyAreNotNeeded) {
  const std::string unneeded = R"x("ts":1,"dur":1,"args":{"memory bandwidth (GB/s)":)x";
  const std::string duration = R"("ts":1,"dur":)";
  const std::string other = event(R"("ts":5,"dur":1)");
  for (const std::string word :
       {"inf", "-inf", "nan", "-nan", "-nan(ind)", "nan(0x7)", "INF", "NaN", "Infinity",
        "-Infinity", "+inf", "1.#INF", "-1.#IND", "1.#QNAN", "null", "true", "\"inf\""}) {
    const Recording trace = read_text("[" + event(unneeded + word + "}") + "]");
    EXPECT_EQ(trace.events.size(), 1U) << word;
    EXPECT_TRUE(trace.problems.empty()) << word;
    const Recording without = read_text("[" + event(duration + word) + "," + other + "]");
    EXPECT_EQ(without.events.size(), 1U) << word;
    EXPECT_EQ(without.unread.without_time, 1) << word;
  }
  for (const std::string word : {"in", "nil", "nane", "1e5x", "1.#", "infinite", "nan(", "-x"}) {
    EXPECT_THAT(refusal("[" + event(duration + word) + "]"), HasSubstr("expected a")) << word;
  }
}

// Among times since 1970, of which one recording spans minutes.
TEST(KinetoReaderTest, ATimeOfZeroAmongOthersIsNoTime) {
  const Recording trace = read_text("[" + event(R"("ts":0,"dur":5)") + "," +
                                    event(R"("ts":1707417525512283,"dur":1)") + "]");
  EXPECT_EQ(trace.events.size(), 1U);
  EXPECT_EQ(trace.unread.without_time, 1);
  EXPECT_EQ(read_text("[" + event(R"("ts":0,"dur":5)") + "]").events.size(), 1U);
}

TEST(KinetoReaderTest, NumbersMayStandInQuotesAndWholeOnesMayHaveAPoint) {
  const Recording trace = read_text(
      R"({"baseTimeNanoseconds":"1743379032000000000","traceEvents":[)" +
      event(
          R"("ts":"1005.25","dur":"18.0","args":{"stream":"9","correlation":12.0,"grid":["2",1,1]})") +
      "]}");
  ASSERT_EQ(trace.events.size(), 1U);
  EXPECT_EQ(trace.base_ns, 1743379032000000000);
  EXPECT_EQ(trace.events[0].start_ns, 1005250);
  EXPECT_EQ(trace.events[0].duration_ns, 18000);
  EXPECT_EQ(trace.events[0].stream, 9);
  EXPECT_EQ(trace.events[0].correlation, 12);
  EXPECT_EQ(trace.kernels[0].grid[0], 2);
  EXPECT_EQ(read_text("[" + event(R"("ts":"now","dur":1)") + "]").unread.without_time, 1);
}

TEST(KinetoReaderTest, AByteOrderMarkIsPassedOver) {
  const std::string text = "[" + event(R"("ts":1,"dur":1)") + "]";
  EXPECT_EQ(read_text("\xEF\xBB\xBF" + text).events.size(), 1U);
  EXPECT_EQ(read_text(gzipped("\xEF\xBB\xBF" + text)).events.size(), 1U);
  EXPECT_THAT(refusal(std::string("\xFF\xFE[\0", 4)), HasSubstr("UTF-16; a trace is UTF-8"));
  EXPECT_THAT(refusal("\xEF\xBB"), HasSubstr("expected a value"));
}

// As torch.autograd.profiler wrote it, also with the quote that some versions left out.
TEST(KinetoReaderTest, TheListOfTheOldProfilerIsNamedAndRefused) {
  for (const std::string tid : {R"("tid")", R"(tid")"}) {
    EXPECT_THAT(
        refusal(R"([{"name":"aten::mul","ph":"X","ts":1,"dur":3,"tid":1,"pid":"CPU functions"},
        {"name":"aten::mul","ph":"X","ts":5,"dur":13.5,)" +
                tid + R"(: 0,"pid":"CUDA functions","args":{}}])"),
        HasSubstr("the list of PyTorch's old profiler"))
        << tid;
  }
}

TEST(KinetoReaderTest, WorkOfOtherDevicesIsCountedNotDenied) {
  const Recording mtia = read_text(
      R"([{"ph":"X","cat":"mtia_ccp_events","name":"k","ts":1,"dur":1,"pid":0,"tid":7}])");
  EXPECT_EQ(mtia.unread.foreign.at("category mtia_ccp_events"), 1);
  const Recording ascend = read_text(
      R"([{"ph":"M","name":"process_name","pid":2,"tid":0,"args":{"name":"Ascend Hardware"}},
          {"ph":"X","name":"aclnnAdd","ts":"1","dur":"2","pid":2,"tid":3,"args":{}},
          {"ph":"X","cat":"cpu_op","name":"aten::add","ts":"1","dur":"2","pid":1,"tid":3}])");
  EXPECT_EQ(ascend.unread.foreign.at("process \"Ascend Hardware\""), 1);
  EXPECT_EQ(ascend.events.size(), 1U);
}

TEST(KinetoReaderTest, AnEventThatStandsTwiceCountsOnceAndOrderDoesNotMatter) {
  const std::string a = event(R"("ts":5,"dur":1)");
  const std::string b = event(R"("ts":2,"dur":1)");
  const Recording trace = read_text("[" + a + "," + b + "," + a + "]");
  ASSERT_EQ(trace.events.size(), 2U);
  EXPECT_EQ(trace.events[0].start_ns, 2000);
  EXPECT_THAT(trace.problems, ElementsAre("1 events stand twice and count once"));
}

TEST(KinetoReaderTest, ATruncatedFileGivesWhatCameBefore) {
  const std::string whole =
      R"({"traceEvents":[)" + event(R"("ts":1,"dur":1)") + "," + event(R"("ts":5,"dur":1)") + "]}";
  for (const std::string& text :
       {whole.substr(0, whole.size() - 12), gzipped(whole).substr(0, 60)}) {
    const Recording trace = read_text(text);
    EXPECT_LE(trace.events.size(), 1U);
    ASSERT_EQ(trace.problems.size(), 1U);
    EXPECT_THAT(trace.problems[0], HasSubstr("what came before is used, the rest is unknown"));
  }
  EXPECT_THAT(refusal("{\"schemaVer"), HasSubstr("trace.json: ends at byte"));
}

TEST(KinetoReaderTest, WhatIsNoTraceIsRefusedInOneLine) {
  EXPECT_THAT(refusal(""), HasSubstr("trace.json: the file is empty"));
  EXPECT_THAT(refusal("hello"), HasSubstr("byte 0: expected a value, found 'h'"));
  EXPECT_THAT(refusal("{}"), HasSubstr("expected a profiler's trace"));
  EXPECT_THAT(refusal("3"), HasSubstr("expected an object or a list of events"));
  EXPECT_THAT(refusal(R"({"traceEvents":[{"ph" "X"}]})"), HasSubstr("expected ':' after a key"));
  EXPECT_THAT(refusal(R"({"traceEvents":[]} x)"), HasSubstr("expected the end of the file"));
  EXPECT_THROW(static_cast<void>(read_kineto("/no/such/file.json", {})), InputError);
  EXPECT_THROW(static_cast<void>(read_kineto("/", {})), InputError);
}

TEST(KinetoReaderTest, DeepNestingIsRefusedNotFollowed) {
  const std::string deep(1'000'000, '[');
  EXPECT_THAT(refusal(deep), HasSubstr("nested deeper than 512 levels"));
  EXPECT_THAT(refusal(R"({"traceEvents":[{"args":{"x":)" + deep),
              HasSubstr("nested deeper than 512 levels"));
}

TEST(KinetoReaderTest, AZipBombIsRefused) {
  const std::string bomb = gzipped("[" + std::string(80 << 20, ' ') + "]");
  EXPECT_THAT(refusal(bomb), HasSubstr("no log or trace shrinks that far; refused"));
  EXPECT_THROW(static_cast<void>(read_kineto(ByteSource::memory(
                   "b", std::string_view("[                "), {.unpacked = 4}))),
               InputError);
}

TEST(KinetoReaderTest, AStringOfAnyLengthIsSkipped) {
  const std::string text =
      R"([{"junk":")" + std::string(40 << 20, 'x') + R"("},)" + event(R"("ts":2,"dur":1)") + "]";
  EXPECT_EQ(read_text(text).events.size(), 1U);
  EXPECT_THAT(refusal(R"([{"ph":"X","name":")" + std::string(17 << 20, 'x') + R"("}])"),
              HasSubstr("a string of more than 16 MiB"));
}

TEST(KinetoReaderTest, EscapesAreResolved) {
  const Recording trace = read_text(
      R"([{"ph":"X","cat":"cpu_op","name":"a\"b\\\u00e9\n","ts":1,"dur":1,"pid":1,"tid":1}])");
  ASSERT_EQ(trace.events.size(), 1U);
  EXPECT_EQ(trace.name_of(trace.events[0]), "a\"b\\\xc3\xa9\n");
}

TEST(KinetoReaderTest, IdsAboveTwoToTheSixtyThreeAreNoMistake) {
  const Recording trace = read_kineto(trace_file("uint64-args.json.gz"), {});
  EXPECT_EQ(trace.events.size(), 2U);
  EXPECT_TRUE(trace.problems.empty());
}

TEST(KinetoReaderTest, OldCategoriesAndABareArrayAreRead) {
  const Recording trace = read_text(
      R"([{"ph":"X","cat":"Kernel","name":"k","ts":1,"dur":1,"pid":0,"tid":7,"args":{"stream":7}},
          {"ph":"X","cat":"Runtime","name":"cudaLaunchKernel","ts":0,"dur":1,"pid":1,"tid":1},
          {"ph":"X","name":"ProfilerStep#3","ts":0,"dur":9,"pid":"CPU functions","tid":1}])");
  EXPECT_EQ(trace.events.size(), 3U);
  const RankTimeline line = join(trace, {});
  ASSERT_EQ(line.steps.size(), 1U);
  EXPECT_EQ(line.steps[0].number, 3);
}

TEST(KinetoReaderTest, AGpuAnnotationIsNoStepAndNoWork) {
  const JobTrace job = imports::load_job({trace_file("rocm-mi250-toy.json.gz")}, {});
  const RankTimeline& line = job.ranks[0].line;
  ASSERT_EQ(line.steps.size(), 1U);  // the second one launched nothing
  EXPECT_EQ(line.works.size(), 16U);
  EXPECT_EQ(figures_of(line, line.steps[0]).comp, Duration(149042));
}

TEST(KinetoReaderTest, ATraceWithoutCollectivesSaysSo) {
  const JobTrace job = imports::load_job({trace_file("cuda-sync-multi-stream.json.gz")}, {});
  EXPECT_THAT(job.ranks[0].line.unknowns, Contains(HasSubstr("no collective found")));
  const JobTrace cpu = imports::load_job({trace_file("cpu-only-gloo.json.gz")}, {});
  EXPECT_THAT(cpu.ranks[0].line.unknowns, Contains(HasSubstr("no GPU work in the file")));
  EXPECT_EQ(cpu.ranks[0].rank, 34);
  EXPECT_EQ(cpu.world_size(), 300);
}

std::string kernel(const std::string& name, const std::string& args = "") {
  return R"({"ph":"X","cat":"kernel","name":")" + name +
         R"(","ts":1,"dur":1,"pid":0,"tid":7,"args":{)" + args + "}}";
}

// Names from traces of DeepEP, PyTorch's symmetric memory, vLLM and oneCCL.
TEST(KinetoReaderTest, KernelsThatLookLikeCollectivesAreToldNotCounted) {
  const JobTrace job =
      job_of("[" + kernel("void dpsk::ep::internode::combine<false, 8>(int4*, float*)") + "," +
             kernel("multimem_all_reduce_kernel") + "," +
             kernel("void vllm::cross_device_reduce_1stage<float, 2>()") + "," +
             kernel("oneccl_allgatherv_scan") + "," + kernel("ampere_sgemm") + "," +
             kernel("void at::native::reduce_kernel<512>()") + "]");
  const RankTimeline& line = job.ranks[0].line;
  EXPECT_TRUE(line.collectives.empty());
  std::vector<std::string> patterns;
  for (const LikelyCollectives& likely : line.unrecognised.likely)
    patterns.push_back(likely.pattern);
  EXPECT_THAT(patterns, ::testing::UnorderedElementsAre("internode::combine", "multimem",
                                                        "cross_device_reduce", "allgather"));
}

TEST(KinetoReaderTest, ACollectiveIsKnownByItsNameOrByItsArguments) {
  const std::string text =
      "[" + kernel("mscclKernel_Sum_float_Ring_LL") + "," +
      kernel("anything", R"("Collective name":"allreduce","In msg nelems":4,"dtype":"Float")") +
      "," + kernel("wait_kernel", R"("Collective name":"wait")") + "]";
  const JobTrace job = job_of(text);
  EXPECT_EQ(job.ranks[0].line.collectives.size(), 2U);
  std::vector<Recording> traces;
  traces.push_back(read_text(text));
  const JobTrace asked =
      imports::make_job(std::move(traces), {.join = {.collective_patterns = {"wait"}}});
  EXPECT_EQ(asked.ranks[0].line.collectives.size(), 1U);
}

TEST(KinetoReaderTest, OneRankTwiceIsRefused) {
  const std::string file = trace_file("dlrm-v100x8/rank0.json.gz");
  EXPECT_THROW(static_cast<void>(imports::load_job({file, file}, {})), InputError);
}

// A kernel launched in step 1 that runs after step 2 began belongs to step 1.
TEST(KinetoReaderTest, WorkBelongsToTheStepThatLaunchedIt) {
  const JobTrace job = job_of(R"({"traceEvents":[
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","ts":0,"dur":10,"pid":1,"tid":1},
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#2","ts":10,"dur":10,"pid":1,"tid":1},
    {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","ts":5,"dur":1,"pid":1,"tid":1,
     "args":{"correlation":4}},
    {"ph":"X","cat":"kernel","name":"k","ts":15,"dur":9,"pid":0,"tid":7,
     "args":{"stream":7,"correlation":4}}]})");
  EXPECT_EQ(job.ranks[0].line.works[0].step, 0);
}

}  // namespace
}  // namespace dovetail::imports
