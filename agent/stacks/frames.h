/*
 * frames — the stacks of a process's threads as a debugger prints them: gdb (thread apply all bt)
 * or eu-stack (-m -p).
 */
#ifndef MUSTER_AGENT_STACKS_FRAMES_H
#define MUSTER_AGENT_STACKS_FRAMES_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>

enum { FRAME_NAME = 96 };

/* Finds the function that the thread is in: of its innermost frames those of the C library do not
 * count. out: such as "ring_step()" or "cuStreamSynchronize() of libcuda.so.1". False: the text has
 * none. */
bool stacks_frame_of(const char *text, int tid, char out[FRAME_NAME]);

enum debugger_reads {
	DEBUGGER_NATIVE, /* gdb or eu-stack: all threads */
	DEBUGGER_PYTHON  /* py-spy: the threads that run Python (python.h) */
};

/* Runs the first of these programs that is installed, without a shell, for at most `seconds`, and
 * appends what it prints. ERR_NOTFOUND: none is installed. ERR_TIMEOUT: it was killed; what it had
 * printed is appended. The process runs on, or stays stopped as it was. */
int stacks_debug(enum debugger_reads what, int pid, double seconds, struct buf *out, struct err *e);

#endif
