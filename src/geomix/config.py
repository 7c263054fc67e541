from geomix.settings import *  # noqa: F403
from geomix.settings import load as load_config  # noqa: F401
