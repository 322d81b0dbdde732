// Network namespaces: where the data of a rank travels over a link of its own (scripts/campaigns/testbed.sh).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace dovetail::exec::launch {

// Moves the calling thread into a named namespace (`ip netns list`); threads that it starts later
// are inside too. Throws InputError when there is no such namespace, DeviceError when it is not
// allowed.
void enter_network_namespace(const std::string& name);

// The first IPv4 address of the calling thread's namespace that is not the loopback's, or "".
std::string first_network_address();

}  // namespace dovetail::exec::launch
