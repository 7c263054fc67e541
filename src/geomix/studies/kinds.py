"""The kinds of study by the name that `geomix.settings.instances` gives them."""

from geomix.studies.language import LANGUAGE
from geomix.studies.speech import SPEECH

KINDS = {kind.name: kind for kind in (SPEECH, LANGUAGE)}
