// The one place where nlohmann/json is compiled.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#ifdef DOVETAIL_JSON_ONCE
DOVETAIL_JSON_TEMPLATES(template);
#endif
