"""`python -m tandemq.pipeline` and the file to give to spark-submit."""

from tandemq.pipeline.cli import main

if __name__ == "__main__":
    main()
