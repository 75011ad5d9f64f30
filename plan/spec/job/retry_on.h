/*
 * job_retry_on — after which ends of a program's task the run is restarted: [restart] retry_on.
 *
 *     list = item { "," item }        item = [ "!" ] ( "any" | "signal" | STATUS [ "-" STATUS ] | SIGNAL )
 *
 * STATUS is an exit status from 1 to 255, SIGNAL a name such as SIGKILL or KILL. An end is in the list
 * if an item without "!" names it and none with "!" does. If all items have "!", every other end is
 * in it.
 */
#ifndef MUSTER_PLAN_SPEC_JOB_RETRY_ON_H
#define MUSTER_PLAN_SPEC_JOB_RETRY_ON_H

#include "base/buf.h"

#include <stdbool.h>

/* Checks the list; returns 0, or -1 after appending "cause; remedy" to `why`. */
int job_retry_on_check(const char *list, struct buf *why);
/* Whether the list, which is valid, has the end of a process. status: as waitpid(2) sets it. */
bool job_retry_on_has(const char *list, int status);

#endif
