// Lines of a log as their program wrote them, behind whatever launchers and other programs put around them.
//
// Three things stand between a program and its log, and none of them is known before the log is read:
// - colours, which terminals take ("\x1b[36m"): plain() removes them;
// - a launcher's tag before each piece that the program wrote, which may be before a line or inside it:
//   "[0] ", "[1,0]<stdout>:", " 0: ", "(worker-0) ", "[2025-03-14 10:00:01] ", "pod/worker-0 | ". LauncherTags
//   learns them: what stands before a line whose beginning is known is a tag, whatever its numbers;
// - NCCL's own lines, which other threads write into the middle of a line: nccl_line() finds where they begin.
//
//   LauncherTags tags;
//   tags.learn("[1,0]<stdout>:");                   // it stood before "# nThread 1 ..."
//   tags.without("-1[1,0]<stdout>:  91.10")         // "-1                91.10"
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::imports {

// Without terminal colours and a byte order mark. `storage` holds the text where it had any.
std::string_view plain(std::string_view line, std::string& storage);

class LauncherTags {
 public:
  // `prefix`: what stood before a line that the program itself began. Blanks and bare numbers are no tag.
  void learn(std::string_view prefix);
  // The text with blanks where a tag stood. Numbers in a tag may differ from those that were learned.
  [[nodiscard]] std::string without(std::string_view text) const;

 private:
  std::vector<std::string> shapes_;  // a run of digits is '\1', of blanks '\2'; longest first
};

// Where a line of NCCL's debug log begins in a text, and who wrote it.
//   node0:4321:4399 [0] NCCL INFO AllReduce: opCount 1a ...
struct NcclLine {
  std::size_t begin = 0;  // of the host's name
  std::string_view
      host{};  // "": it is glued to what stands before it, and no host of that name is known
  std::string_view pid{}, tid{};
  std::string_view device{};   // "[0]"; "": the line does not say it
  std::string_view message{};  // behind "NCCL INFO "; runs to the end of the text
};

// "NCCL version 2.28.3+cuda13.0", of AMD's library "RCCL version : 2.22.3-HEAD:271856d". Views of the text.
struct LibraryVersion {
  std::string_view library{}, version{};
};
std::optional<LibraryVersion> library_version(std::string_view text);

// The first one in the text that is INFO, WARN, TRACE, CALL, DIAG (2.31 on) or ATTN (2.32). Where the host's name
// follows a word without a blank ("0x55f2host-a:32625:32625"), the longest known host that fits is taken.
std::optional<NcclLine> nccl_line(std::string_view text,
                                  const std::set<std::string, std::less<>>& hosts);

}  // namespace dovetail::imports
