// A library that is not found at run time.
//
// SPDX-License-Identifier: Apache-2.0
int dovetail_test_absent() { return 1; }
