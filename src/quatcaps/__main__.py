"""`python -m quatcaps`, and so `torchrun -m quatcaps`."""

from quatcaps.cli import main

if __name__ == "__main__":
    main()
