/* top — the screen of `muster top`: the state of a run, live. */
#ifndef MUSTER_LAUNCHER_TOP_TOP_H
#define MUSTER_LAUNCHER_TOP_TOP_H

#include "base/err.h"

/* Shows the run in this folder until the person quits. stdin and stdout are the terminal, which is
 * given back as it was. *signal: the signal that ended it, such as SIGTERM; 0: a key, or Ctrl-C. */
int top_show(const char *run, int *signal, struct err *e);

#endif
