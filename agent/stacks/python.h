/*
 * python — the Python functions of a process, as py-spy (py-spy dump --full-filenames) prints them:
 *
 *     Thread 4711 (idle): "MainThread"
 *         wait (/venv/lib/python3.11/site-packages/torch/distributed/x.py:215)
 *         train_step (/home/a/train.py:42)
 *
 * The innermost function comes first. Only the files of this folder include it, and tests.
 */
#ifndef MUSTER_AGENT_STACKS_PYTHON_H
#define MUSTER_AGENT_STACKS_PYTHON_H

#include <stdbool.h>

enum { PYTHON_FRAME = 112, PYTHON_PATH = 4096 };

struct python_frames {
	char inner[PYTHON_FRAME]; /* "wait (torch/distributed/x.py:215)" */
	/* The innermost function outside Python's library and its packages, if that is another one:
	 * "train_step (train.py:42)". "": there is none. */
	char caller[PYTHON_FRAME];
};

/* Whether the process is a Python interpreter: its program, or a library that it has mapped. */
bool stacks_is_python(int pid);

/* Finds the functions of a thread. main: it is the main thread, which some versions of py-spy do not
 * name by its id. False: the text has none. */
bool stacks_python_frames(const char *text, int tid, bool main, struct python_frames *out);

#endif
