"""dovetail_torch by this package's name: capture, describe, apply, record and replan inside PyTorch.

    import dovetail.torch
    dovetail.torch.apply(model, "plan.json", optimizer=optimizer)

Needs torch; `import dovetail` does not.

SPDX-License-Identifier: Apache-2.0
"""

from dovetail_torch import *  # noqa: F403
from dovetail_torch import __all__  # noqa: F401
