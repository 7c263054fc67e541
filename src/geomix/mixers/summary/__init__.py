"""SummaryMixing: the utterance's mean beside a local map."""

from geomix.mixers.lazy import lazily

__getattr__ = lazily(__name__, {"SummaryMixing": "module"})
