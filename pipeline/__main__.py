"""`python -m pipeline` and the file to give to spark-submit."""

from pipeline.cli import main

if __name__ == "__main__":
    main()
