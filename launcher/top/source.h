/*
 * source — gathers the facts of a run once a second, on a thread of its own.
 *
 * It asks the supervisor over one connection that stays open. When the supervisor does not answer, or
 * is gone, it looks at the files of the run folder instead (launcher/console/look.h), and connects
 * again as soon as a supervisor listens there. A supervisor that is stopped, a host that is
 * unreachable or a file system that hangs keeps this thread waiting, and never the screen.
 *
 * Ranks come in blocks of CONSOLE_RANKS; at most SOURCE_BLOCKS blocks are asked for in a second, so
 * that a run of many thousand ranks costs its supervisor no more than one of a thousand.
 */
#ifndef MUSTER_LAUNCHER_TOP_SOURCE_H
#define MUSTER_LAUNCHER_TOP_SOURCE_H

#include "launcher/top/facts.h"

struct top_source;

/* run: the run folder. The first facts come as soon as they are known. */
int top_source_open(const char *run, struct top_source **out, struct err *e);
/* Becomes readable when there are new facts. */
int top_source_fd(const struct top_source *s);
/* The newest facts, which the caller frees; NULL: none since the last call. */
struct top_facts *top_source_take(struct top_source *s);
/* Whose log the facts shall have; -1: of none. */
void top_source_want_log(struct top_source *s, int rank);
/* Ends the thread. One that is held up, because a file system hangs, is left behind after a moment,
 * with its memory: the process ends then. Takes NULL. */
void top_source_close(struct top_source *s);

#endif
