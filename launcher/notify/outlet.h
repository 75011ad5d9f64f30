/*
 * outlet — a queue of notifications and the thread that delivers them. For launcher/notify/ only.
 */
#ifndef MUSTER_LAUNCHER_NOTIFY_OUTLET_H
#define MUSTER_LAUNCHER_NOTIFY_OUTLET_H

#include "launcher/notify/notify.h"

#include <jansson.h>

/* How to deliver one notification. All but `close` run in the outlet's thread. */
struct outlet_way {
	/*
	 * Delivers the message, once. `cut` is a descriptor: as soon as it can be read, the delivery
	 * ends with an error. After an error *again_s is how many seconds later it may be tried
	 * again; 0: the outlet decides; negative: never.
	 */
	int (*deliver)(void *way, const json_t *message, int cut, double *again_s, struct err *e);
	/* Frees `way`, after the thread has ended. */
	void (*close)(void *way);
	void *way;
};

struct outlet;

/* Takes over way->way, also after an error. */
int notify_outlet_open(const struct outlet_way *way, struct outlet **out, struct err *e);
/* Queues the message, which is taken over. */
void notify_outlet_put(struct outlet *o, json_t *message);
bool notify_outlet_trouble(struct outlet *o, char why[NOTIFY_WHY]);
/* No message follows: what is queued is delivered with less patience. */
void notify_outlet_finish(struct outlet *o);
/* Waits until the time `until` (clock_s) and cuts the rest. Adds to *out. */
void notify_outlet_close(struct outlet *o, double until, struct notify_result *out);

/* post.c: by HTTP. The strings are copied; token "": none. */
int notify_post_open(const char *url, const char *token, const char *ca_file, bool slack,
		     struct outlet_way *out, struct err *e);
/* command.c: by a command. */
int notify_command_open(const char *command, bool slack, struct outlet_way *out, struct err *e);

/* body.c: the text of the message as it is sent; the caller frees it. NULL: no memory. */
char *notify_body(const json_t *message, bool slack);

#endif
