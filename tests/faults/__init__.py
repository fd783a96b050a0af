"""The product as processes, broken on purpose, and judged by what the targets' own books say."""
