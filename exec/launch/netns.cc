// Enters a network namespace that `ip netns add` made, and reads the addresses inside, for tests
// over shaped links.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/launch/netns.h"

#include "base/error.h"
#include "exec/launch/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <memory>

namespace dovetail::exec::launch {

void enter_network_namespace(const std::string& name) {
  const std::string path = "/run/netns/" + name;
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) {
    throw InputError("no network namespace \"" + name + "\": " + path + ": " + errno_text(errno) +
                     "; scripts/campaigns/testbed.sh makes a pair of them");
  }
  if (setns(file.get(), CLONE_NEWNET) != 0) {
    throw DeviceError("cannot enter network namespace " + name + ": " + errno_text(errno));
  }
}

std::string first_network_address() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw DeviceError("getifaddrs: " + errno_text(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0 || (entry->ifa_flags & IFF_UP) == 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    return text.data();
  }
  return "";
}

}  // namespace dovetail::exec::launch
