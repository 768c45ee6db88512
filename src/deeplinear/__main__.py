"""``python -m deeplinear`` is the command line ``deeplinear``."""

from deeplinear_command import main

if __name__ == "__main__":
    main()
