"""`python -m app` is the same as `runwire`."""

from app.cli.main import main

if __name__ == "__main__":
    main()
