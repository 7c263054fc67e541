"""The language study (e01): text, WordPiece, blocks, perplexity and the runs of its arms."""
