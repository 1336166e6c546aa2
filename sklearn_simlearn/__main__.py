"""Run the command line: ``python -m sklearn_simlearn``."""

import sys

LOADING = "loading ..."


def show_on_terminal(text):
    """Show a text in the current line, which the next text replaces."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(text, end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # Shown before the imports, which take one or two seconds.
    show_on_terminal(LOADING)
    from sklearn_simlearn.comparison._command_line import main, prepare_streams

    show_on_terminal(" " * len(LOADING))
    prepare_streams()
    sys.exit(main())
