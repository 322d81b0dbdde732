// dovetail import as a person would use it: from a log to a cluster file, to a comparison of policies.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "recordings/formats.h"
#include "tests/cli/asked.h"
#include "tests/support/gzip.h"

namespace dovetail::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kCorpus = std::string(DOVETAIL_SOURCE_DIR) + "/tests/fuzz/corpus/";

class ImportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("dovetail_import." + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }

 private:
  fs::path folder_;
};

TEST_F(ImportTest, MakesAClusterOfALogThatExploreTakes) {
  const std::string log = kCorpus + "nccl-tests/two_runs.log";
  const Ended imported = ask("import nccl-tests " + log + " -o " + path("here.json"));
  EXPECT_EQ(imported.code, 0) << imported.output;
  EXPECT_THAT(imported.output, HasSubstr("nccl-tests 2.19.6, NCCL 2.28.3; measured"));
  EXPECT_THAT(imported.output, HasSubstr("all-reduce over 2 ranks: 1 MiB to 2 MiB measured"));
  EXPECT_THAT(imported.output, HasSubstr("reduce-scatter over 2 ranks: 1 MiB to 2 MiB measured"));
  const Ended explored = ask(
      "explore --workload resnet18 --policies torch-ddp --points 2 --cluster " + path("here.json"));
  EXPECT_EQ(explored.code, 0) << explored.output;
  EXPECT_THAT(explored.output, HasSubstr("imported"));
}

TEST_F(ImportTest, PredictionsRepeatWhichSizesWereMeasured) {
  const std::string log = kCorpus + "nccl-tests/two_runs.log";
  ASSERT_EQ(
      ask("import nccl-tests " + log + " --over a100x2_nv12 --name mine -o " + path("here.json"))
          .code,
      0);
  const Ended planned = ask("plan --workload resnet18 --policy torch-ddp --cluster " +
                            path("here.json") + " -o " + path("plan.json"));
  EXPECT_EQ(planned.code, 0) << planned.output;
  EXPECT_THAT(planned.output, HasSubstr("all-reduce over 2 ranks was measured from 1 MiB to 2 MiB; "
                                        "other sizes are those of a100x2_nv12"));
}

// What a file of the format lacks, said for the files of the corpus.
std::string said_besides(imports::Format format) {
  const bool has_ranks = imports::row_of(format).says_ranks != imports::SaysRanks::No;
  if (format == imports::Format::Nsys) return " --ranks 2 --step step --bytes 1MiB,2MiB";
  return has_ranks ? "" : " --ranks 2";
}

TEST_F(ImportTest, ReadsEveryFormatOfTheCorpusPackedWithGzip) {
  for (const imports::Format format : kAllOf<imports::Format>) {
#ifndef DOVETAIL_SQLITE
    if (format == imports::Format::Nsys) continue;
#endif
    const std::string word(to_string(format));
    const std::string written = path(word);
    for (const auto& file : fs::directory_iterator(kCorpus + word)) {  // some are refused
      if (fs::exists(written)) break;
      write_file(path("packed.gz"), gzipped(read_file(file.path().string())));
      const Ended ended =
          ask("import " + word + " " + path("packed.gz") + said_besides(format) + " -o " + written);
      EXPECT_THAT(ended.code, AnyOf(0, 2)) << ended.output;
    }
    EXPECT_TRUE(fs::exists(written)) << word;
  }
}

TEST_F(ImportTest, APlanFromAnImportedProfileIsPredictedAgainByAnyNameOfIt) {
  const std::string timeline = kCorpus + "horovod-timeline/three_steps.json";
  const std::string step = path("step.json");
  ASSERT_EQ(ask("import horovod-timeline " + timeline + " -o " + step).code, 0);
  ASSERT_EQ(ask("plan --workload " + step + " -o " + path("plan.json")).code, 0);
  const std::string again = path("./step.json");
  for (const std::string& cluster : {std::string(), " --cluster " + step, " --cluster " + again}) {
    const Ended ended = ask("predict --plan " + path("plan.json") + cluster);
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("on three_steps; predicted"));
  }
  // The same machine for explore; not for a model whose kernels it has no times for.
  EXPECT_EQ(
      ask("explore --policies torch-ddp --points 2 --workload " + step + " --cluster " + again)
          .code,
      0);
  const Ended refused = ask("explore --workload resnet18 --cluster " + step);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, HasSubstr("it has no times for the ops of resnet18"));
}

TEST_F(ImportTest, SaysHowToImportALogThatIsNamedAsACluster) {
  const std::string log = path("raw");
  write_file(log, gzipped(read_file(kCorpus + "nccl-tests/two_runs.log")));
  const Ended ended = ask("explore --workload resnet18 --cluster " + log);
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.output, HasSubstr("dovetail import nccl-tests " + log + " -o cluster.json"));
}

TEST_F(ImportTest, SaysWhichFormatAFileOfAnotherOneLooksLike) {
  const std::string log = kCorpus + "nccl-tests/two_runs.log";
  EXPECT_THAT(ask("import nccl-inspector " + log).output,
              HasSubstr(log + " looks like nccl-tests: dovetail import nccl-tests " + log));
  const std::string dump = kCorpus + "flight-recorder/two.json";
  EXPECT_THAT(ask("import horovod-timeline " + dump).output,
              HasSubstr("looks like flight-recorder: dovetail import flight-recorder"));
  // A fault of the right format is that format's alone.
  write_file(path("cut.json"), read_file(dump).substr(0, 300));
  EXPECT_THAT(ask("import flight-recorder " + path("cut.json")).output,
              Not(HasSubstr("looks like")));
}

// The useful line comes first, and --ranks is asked for only where the file can be one of the format.
TEST_F(ImportTest, NamesTheWayOnFromFilesOfOtherPrograms) {
  const std::string log = kCorpus + "nccl-tests/two_runs.log";
  EXPECT_THAT(
      ask("diagnose " + log).output,
      HasSubstr("dovetail: " + log + " looks like nccl-tests: dovetail import nccl-tests " + log));
  write_file(path("nccl.log"), "node0:1:2 [0] NCCL INFO Using network Socket\n");
  EXPECT_THAT(ask("import kineto " + path("nccl.log")).output,
              HasSubstr("nccl.log looks like nccl-log: dovetail import nccl-log "));
  write_file(path("run.sqlite"), "SQLite format 3");
  EXPECT_THAT(ask("diagnose " + path("run.sqlite")).output,
              HasSubstr("run.sqlite: no SQLite export of Nsight Systems that can be read"));
  // Nsight's own report, and its export as lines of JSON.
  write_file(path("run.nsys-rep"), std::string("\x01NVIDIA\0\x02", 9));
  write_file(path("lines.json"), R"({"Type":48,"CudaEvent":{"startNs":"1"}}
{"Type":48,"CudaEvent":{"startNs":"2"}}
)");
  for (const std::string name : {"run.nsys-rep", "lines.json"}) {
    for (const std::string command :
         {"diagnose ", "import kineto ", "import nsys --step it --bytes 1MiB --ranks 2 "}) {
      const Ended ended = ask(command + path(name));
      EXPECT_EQ(ended.code, 2);
      EXPECT_THAT(ended.output, HasSubstr("nsys export --type=sqlite --include-blobs=true -o " +
                                          name.substr(0, name.find('.')) + ".sqlite"))
          << command;
    }
  }
  write_file(
      path("et.json"),
      R"({"schema":"1.0.1","nodes":[{"id":2,"name":"[pytorch|profiler|execution_trace|thread]"}]})");
  for (const char* const command :
       {"diagnose ", "import kineto ", "import chakra ", "import chakra --ranks 2 "}) {
    const Ended ended = ask(command + path("et.json"));
    EXPECT_EQ(ended.code, 2);
    EXPECT_THAT(ended.output,
                HasSubstr("dovetail: " + path("et.json") + " is PyTorch's execution trace"));
    EXPECT_THAT(ended.output, Not(HasSubstr("say it with --ranks")));
  }
  write_file(path("rocm.json"), R"({"rocprofiler-sdk-tool":[]})");
  EXPECT_THAT(ask("diagnose " + path("rocm.json")).output,
              HasSubstr("rocm.json is the JSON of rocprofiler-sdk (rocprofv3), which is not read"));
  write_file(path("step.et.json"), R"({"workload_graph":[]})");
  EXPECT_THAT(ask("import chakra " + path("step.et.json")).output,
              HasSubstr("say it with --ranks"));
  // With all that it needs, and into a file of what it gives, whatever was expected there.
  const std::string way = "dovetail import chakra " + path("step.et.json") + " --ranks N";
  EXPECT_THAT(ask("show " + path("step.et.json")).output, HasSubstr(way + " shows what it holds"));
  for (const std::string command : {"predict --plan ", "compare x.json ", "explore --workload ",
                                    "explore --workload mlp --cluster "}) {
    EXPECT_THAT(ask(command + path("step.et.json")).output, HasSubstr(way + " -o step.json"));
  }
  EXPECT_THAT(ask("explore --workload " + log).output, HasSubstr(log + " -o cluster.json"));
}

TEST_F(ImportTest, RefusesWithoutWritingAnything) {
  const std::string bad = path("bad.log");
  write_file(bad, "hello\n");
  const Ended ended = ask("import nccl-tests " + bad + " -o " + path("out.json"));
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.output, HasSubstr("no usable row of nccl-tests"));
  EXPECT_FALSE(fs::exists(path("out.json")));
  EXPECT_EQ(ask("import nccl-tests " + bad + " -o " + bad).code, 2);
  write_file(bad, std::string("\xff\xfeh\0i\0", 6));
  EXPECT_THAT(ask("import nccl-log " + bad).output, HasSubstr("UTF-16; make UTF-8 of it"));
  EXPECT_THAT(ask("import").output, HasSubstr("import: name a format: nccl-tests"));
  EXPECT_THAT(ask("import nccl-test x").output, HasSubstr("did you mean nccl-tests?"));
  EXPECT_THAT(ask("import nccl-tests --overs x y").output, HasSubstr("did you mean --over?"));
}

}  // namespace
}  // namespace dovetail::testing
