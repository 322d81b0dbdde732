// A module that needs a library which is not found.
//
// SPDX-License-Identifier: Apache-2.0
int dovetail_test_absent();
extern "C" int dovetail_test_uses_absent() { return dovetail_test_absent(); }
