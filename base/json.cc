// Compiles the functions of nlohmann/json once, for the builds in which base/json.h only declares
// them.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#ifdef DOVETAIL_JSON_ONCE
DOVETAIL_JSON_TEMPLATES(template);
#endif
