/*
 * blame — whether the last lines of a failed task blame another rank.
 *
 * When one task dies, the others lose their connections to it and fail, too, each with its own
 * traceback. Those tracebacks hide the one that matters. So a task whose last error is that a peer is
 * gone counts as a consequence: the supervisor waits a moment for the loss of another rank.
 */
#ifndef MUSTER_AGENT_TASK_BLAME_H
#define MUSTER_AGENT_TASK_BLAME_H

#include <stdbool.h>

/* text: lines, each with a newline; the last ones count. */
bool task_blames_peer(const char *text);

#endif
