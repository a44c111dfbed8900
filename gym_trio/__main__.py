"""``python -m gym_trio``: the same as ``gym-trio``."""

from gym_trio.cli import main

if __name__ == "__main__":
    main()
