"""The kernels of RLX, one file for each family of ops. Importing the package registers them."""

from rlx.support.submodules import import_all

import_all(__name__)
