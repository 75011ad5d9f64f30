/*
 * watch — a thread that watches a rank's node and device while the rank trains (agent/health/).
 *
 * It samples once per second and judges once per window of [health] slow_window seconds. It sends
 * the message health if what it found has changed, so that a healthy rank sends one message. It
 * shares no lock with the trainer. If it hangs, because a driver hangs, the run goes on without its
 * findings.
 */
#ifndef MUSTER_AGENT_WATCH_H
#define MUSTER_AGENT_WATCH_H

#include "agent/control.h"
#include "base/err.h"
#include "libcomm/comm.h"

#include <stdbool.h>

struct agent_watch;

struct watch_options {
	struct control *control; /* borrowed until the close, as is `world` */
	struct comm *world;      /* whose links over the network are watched; NULL: none are */
	double window_s;
	bool node; /* also watch what all ranks of the node share */
	const char *
		gpu; /* PCI address; "": none. Borrowed until the open has returned, as is `disk` */
	const char *disk; /* a folder on the disk that holds the checkpoints */
};

int agent_watch_open(const struct watch_options *o, struct agent_watch **out, struct err *e);
/* Ends the thread. If it does not end within a second, it is left behind, with its memory. Takes
 * NULL. */
void agent_watch_close(struct agent_watch *w);

#endif
