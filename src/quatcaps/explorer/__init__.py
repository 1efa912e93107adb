"""The explorer: turn a toy, watch the capsules. A local web application, and the same as one file."""
