"""dovetail_torch by this package's name: capture, describe, apply, record and replan inside PyTorch.

    import dovetail.torch
    dovetail.torch.apply(model, "plan.json", optimizer=optimizer)

    $ python -m dovetail.torch measure -o mine.json      # what kernels take on this GPU

Needs torch; `import dovetail` does not.

SPDX-License-Identifier: Apache-2.0
"""

from dovetail_torch import *  # noqa: F403
from dovetail_torch import __all__  # noqa: F401

if __name__ == "__main__":
    import sys

    from dovetail_torch.__main__ import main

    sys.exit(main())
