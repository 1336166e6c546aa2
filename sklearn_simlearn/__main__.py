"""Run the command line: ``python -m sklearn_simlearn``."""

import sys

from sklearn_simlearn.comparison._command_line import main, prepare_streams

if __name__ == "__main__":
    prepare_streams()
    sys.exit(main())
