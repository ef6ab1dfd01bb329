"""`python -m app` is the same as `runwire`; in a wheel this is `python -m runwire`."""

from app.cli.main import main

if __name__ == "__main__":
    main()
