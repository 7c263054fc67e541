"""All targets by name."""

from tests.fuzz import configurations, data, results

TARGETS = {**data.targets(), **configurations.targets(), **results.targets()}
