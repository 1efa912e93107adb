"""`python -m quatcaps.cli`."""

from quatcaps.cli import main

if __name__ == "__main__":
    main()
