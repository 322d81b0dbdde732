// A library that is no module of ours.
//
// SPDX-License-Identifier: Apache-2.0
extern "C" int dovetail_test_empty() { return 0; }
