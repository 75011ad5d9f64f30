/* event_text — what an event of a run says, in one line for people. */
#ifndef MUSTER_LAUNCHER_CLI_EVENT_TEXT_H
#define MUSTER_LAUNCHER_CLI_EVENT_TEXT_H

#include "base/buf.h"

#include <jansson.h>

/* Appends where it happened, the text for people if the event has one, and its other fields with
 * their names: "rank 3 on n2, step 40: connection closed (how closed, fault connection-lost)".
 * Fields that only programs need, and lists, are left out. */
void command_event_text(const json_t *event, struct buf *out);

#endif
