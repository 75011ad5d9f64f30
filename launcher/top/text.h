/* text — small texts that several parts of the screen need. */
#ifndef MUSTER_LAUNCHER_TOP_TEXT_H
#define MUSTER_LAUNCHER_TOP_TEXT_H

#include "base/human.h"
#include "launcher/rundir/state.h"
#include "launcher/top/page.h"

/* "12 s", "5 min 12 s", "3 h 12 min", "2 d 4 h" */
const char *top_text_duration(double seconds, char out[HUMAN]);
/* "-" if it is not known */
const char *top_text_seconds(double seconds, char out[HUMAN]);
const char *top_text_bytes(double bytes, char out[HUMAN]);

/* How a state looks. */
enum top_style top_text_state_style(enum rundir_state_id id);

#endif
