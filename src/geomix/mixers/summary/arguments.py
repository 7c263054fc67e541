"""Arguments of SummaryMixing."""

from __future__ import annotations

from typing import Literal

from geomix.mixers.base import Arguments, Count, argument


class CausalSummary(Arguments):
    """SummaryMixing with the mean of the tokens up to each one, as the language model has it."""

    mixer: Literal["summary"] = argument(..., "the mean of one map, joined to a local map (arXiv 2307.07421)")
    hidden: Count | None = argument(None, "width of the local map and of the summary; null: the model's width")

    def parameters(self, width: int) -> int:
        """Two maps and their norms, and the one that joins them: 263,936 at width 256."""
        hidden = self.hidden or width
        return 2 * (width * hidden + hidden) + 4 * hidden + (2 * hidden * width + width)

    def macs_per_frame(self, width: int, frames: int) -> float:
        """The two maps and the joining one, its summary's half for each token."""
        return 4 * width * (self.hidden or width)


class Summary(CausalSummary):
    """SummaryMixing: the mean of one map over the utterance, joined to a local map (arXiv 2307.07421)."""

    causal: bool = argument(False, "the mean of the frames up to each one instead of all")

    def macs_per_frame(self, width: int, frames: int) -> float:
        """The two maps and the joining one, its summary's half once an utterance unless it is causal."""
        hidden = self.hidden or width
        return 3 * width * hidden + width * hidden * (1 if self.causal else 1 / frames)
